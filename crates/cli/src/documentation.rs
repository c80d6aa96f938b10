//! Tests of the documentation: command lines are accepted, and the page of flags is what `--help` prints.

#[path = "../../../tests/documents/command_lines.rs"]
mod command_lines;

use crate::cmd::Cli;

#[test]
fn command_lines_of_documentation_are_accepted() {
    command_lines::assert_all_parse::<Cli>(150);
}

#[test]
fn page_of_flags_is_what_help_prints() {
    let intro = "`--help` of each verb. What all verbs have in common, and the fields of `--json`: [flags and\nJSON](json.md).";
    command_lines::assert_page_is_current::<Cli>("docs/reference/thermo.md", intro);
}
