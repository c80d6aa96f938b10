//! The `thermo-lab` command: runs experiments and their synthetic workloads.
//!
//! `cmd` has one file for each subcommand. `programs` finds the other commands that experiments start.
//! Experiments set up swap, control groups and load, so this command is not installed on servers. Results go
//! to standard output, messages to standard error.

mod cmd;
#[cfg(test)]
mod documentation;
mod experiment_file;
mod programs;
mod stop;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use thermo_manual::completions;
use thermo_term::exit;

fn main() -> ExitCode {
    completions::answer(cmd::Cli::command);
    exit::finish("thermo-lab", cmd::Cli::parse().run(), |_| exit::ERROR)
}
