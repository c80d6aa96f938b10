//! The `thermo-lab` command: experiments, and the workloads they are made with.
//!
//! What each verb does is in `cmd`; the other commands that experiments start are found by `programs`. Experiments set
//! up swap, control groups and load, so this command is not installed on servers. Data goes to standard output,
//! everything else to standard error.

mod cmd;
mod programs;
mod stop;

use std::process::ExitCode;

use clap::Parser;
use thermo_term::exit;

fn main() -> ExitCode {
    exit::code_of("thermo-lab", cmd::Cli::parse().run(), |_| exit::ERROR)
}
