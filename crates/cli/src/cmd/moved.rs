//! Verbs that became programs of their own: typing one prints the name of the program, and nothing else happens.

use std::ffi::OsString;

use anyhow::bail;
use thermo_term::exit::Exit;

/// Whatever was given to such a verb, `--help` too.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<OsString>,
}

/// Says which program does now what `verb` did.
///
/// # Errors
/// Always.
pub fn to(verb: &str, program: &str) -> anyhow::Result<Exit> {
    bail!(
        "`thermo {verb}` is no longer part of thermo: use `{program}`; `{program} --help` has the arguments"
    )
}
