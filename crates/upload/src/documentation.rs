//! Tests of the documentation: command lines are accepted, and the page of flags is what `--help` prints.

#[path = "../../../tests/documents/command_lines.rs"]
mod command_lines;

use crate::Cli;

#[test]
fn command_lines_of_documentation_are_accepted() {
    command_lines::assert_all_parse::<Cli>(3);
}

#[test]
fn page_of_flags_is_what_help_prints() {
    let intro =
        "What `--help` prints. The [guide](../guide/fleet.md) explains the way from agents to reports.";
    command_lines::assert_page_is_current::<Cli>("docs/reference/thermo-upload.md", intro);
}
