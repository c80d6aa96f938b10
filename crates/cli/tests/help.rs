//! Checks of every `--help` text.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use common::run;

#[test]
fn every_help_text_has_two_examples() {
    let dir = tempfile::tempdir().unwrap();
    // The program itself comes first.
    let mut verbs = vec![Vec::new()];
    let mut nr_verbs = 0;
    while let Some(verb) = verbs.pop() {
        let arguments: Vec<&str> = verb.iter().map(String::as_str).collect();
        let help = help(dir.path(), &arguments);
        let examples = help.split("Examples:").nth(1).unwrap_or("");
        assert!(examples.matches("\n  thermo ").count() >= 2, "{verb:?}: {help}");
        assert!(help.is_ascii(), "{verb:?}: {help}");
        verbs.extend(subverbs(&help, &verb));
        nr_verbs += 1;
    }
    assert!(nr_verbs > 20, "--help lists only {nr_verbs} verbs");
}

fn help(dir: &std::path::Path, verb: &[&str]) -> String {
    let arguments: Vec<&str> = verb.iter().copied().chain(["--help"]).collect();
    String::from_utf8(run(dir, &arguments).stdout).unwrap()
}

/// The verbs below "Commands:", each preceded by its parent verbs.
fn subverbs(help: &str, parents: &[String]) -> Vec<Vec<String>> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    listed
        .take_while(|line| !line.is_empty())
        // Lines with a deeper indent continue a description.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(|name| parents.iter().cloned().chain([name.to_owned()]).collect())
        .collect()
}
