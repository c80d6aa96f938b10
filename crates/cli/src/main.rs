//! The `thermo` command: reads its arguments, does one verb, and ends with the status that says how it went.
//!
//! What each verb does is in `cmd`, one file a verb; what they share on the command line is in `args`; how
//! monitoring is put together and watched over is in `session`. Data goes to standard output, everything else
//! to standard error.

mod args;
mod cmd;
mod exit;
mod interrupt;
mod launch;
mod output;
mod parameter_file;
mod scheme_file;
mod session;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    exit::code_of(cmd::Cli::parse().run())
}
