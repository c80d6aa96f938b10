//! Checks of every `--help` text.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

#[test]
fn every_help_text_has_two_examples() {
    let dir = tempfile::tempdir().unwrap();
    let verbs = common::help_of_all_verbs(dir.path());
    for (verb, help) in &verbs {
        let examples = help.split("Examples:").nth(1).unwrap_or("");
        assert!(examples.matches("\n  thermo ").count() >= 2, "{verb:?}: {help}");
        assert!(help.is_ascii(), "{verb:?}: {help}");
    }
    assert!(verbs.len() > 20, "--help lists only {} verbs", verbs.len());
}
