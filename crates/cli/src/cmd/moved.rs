//! Verbs that became programs of their own. Such a verb prints the name of the program and does nothing else.

use std::ffi::OsString;

use anyhow::bail;
use thermo_term::exit::Exit;

/// Any arguments, `--help` included.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<OsString>,
}

/// Names the program that replaces `verb`.
///
/// # Errors
/// Always.
pub fn to(verb: &str, program: &str) -> anyhow::Result<Exit> {
    bail!(
        "`thermo {verb}` is no longer part of thermo: use `{program}`; `{program} --help` lists its arguments"
    )
}
