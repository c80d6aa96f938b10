//! The `thermo` command: parses its arguments, runs one verb, and exits with the code of the result.
//!
//! `cmd` has one file for each verb, `args` the flags that verbs share, and `session` sets up monitoring and
//! supervises it. Data goes to standard output, everything else to standard error.

// `eprintln!` panics where standard error cannot be written: use `thermo_kernel::message!`.
#![cfg_attr(not(test), warn(clippy::print_stderr))]

mod action_words;
mod args;
mod cmd;
#[cfg(test)]
mod documentation;
mod launch;
mod output_file;
mod parameter_file;
mod privileges;
mod scheme_file;
mod session;
mod terminal;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use thermo_manual::completions;
use thermo_term::exit;

fn main() -> ExitCode {
    completions::answer(cmd::Cli::command);
    exit::finish("thermo", cmd::Cli::parse().run(), code_of_error)
}

/// A command that could not be started gives the exit code that a shell would use.
fn code_of_error(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<launch::LaunchError>()
        .map_or(exit::ERROR, launch::LaunchError::code)
}
