//! The `thermo` command: reads its arguments, does one verb, and ends with the status that says how it went.
//!
//! What each verb does is in `cmd`, one file a verb; what they share on the command line is in `args`; how
//! monitoring is put together and watched over is in `session`. Data goes to standard output, everything else
//! to standard error.

mod args;
mod cmd;
mod launch;
mod parameter_file;
mod scheme_file;
mod session;
mod terminal;

use std::process::ExitCode;

use clap::Parser;
use thermo_term::exit;

fn main() -> ExitCode {
    exit::code_of("thermo", cmd::Cli::parse().run(), code_of_error)
}

/// A command that could not be started ends us with the code that a shell would give it.
fn code_of_error(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<launch::LaunchError>()
        .map_or(exit::ERROR, launch::LaunchError::code)
}
