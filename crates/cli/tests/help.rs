//! What `--help` promises of every verb.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use common::run;

#[test]
fn every_verb_and_every_group_has_two_examples() {
    let folder = tempfile::tempdir().unwrap();
    let mut verbs = verbs_below(&help(folder.path(), &[]), &[]);
    let mut seen = 0;
    while let Some(verb) = verbs.pop() {
        let arguments: Vec<&str> = verb.iter().map(String::as_str).collect();
        let help = help(folder.path(), &arguments);
        let examples = help.split("Examples:").nth(1).unwrap_or("");
        assert!(examples.matches("\n  thermo ").count() >= 2, "{verb:?}: {help}");
        verbs.extend(verbs_below(&help, &verb));
        seen += 1;
    }
    assert!(seen > 20, "only {seen} verbs were found in what --help prints");
}

fn help(folder: &std::path::Path, verb: &[&str]) -> String {
    let arguments: Vec<&str> = verb.iter().copied().chain(["--help"]).collect();
    String::from_utf8(run(folder, &arguments).stdout).unwrap()
}

/// What stands below "Commands:", each with what it is a verb of in front.
fn verbs_below(help: &str, above: &[String]) -> Vec<Vec<String>> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    listed
        .take_while(|line| !line.is_empty())
        // Lines that are further in go on with a description.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(|name| above.iter().cloned().chain([name.to_owned()]).collect())
        .collect()
}
