//! The `thermo-nbd` command: a block server whose buffers share one budget and are released under memory
//! pressure.
//!
//! `serve` runs a server, with the privileges that `confinement` leaves; `control_client` sends commands to a
//! running one. The library `thermo_nbd` implements the server. Data goes to standard output, everything else
//! to standard error.

// `eprintln!` panics where standard error cannot be written: use `thermo_kernel::message!`.
#![cfg_attr(not(test), warn(clippy::print_stderr))]

mod confinement;
mod control;
mod control_client;
#[cfg(test)]
mod documentation;
mod exports;
mod generate;
mod memory;
mod panic;
mod serve;
mod stats;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use thermo_manual::completions;
use thermo_term::exit;

fn main() -> ExitCode {
    completions::answer(serve::Cli::command);
    panic::end_process_at_panic();
    exit::finish("thermo-nbd", serve::Cli::parse().run(), |_| exit::ERROR)
}
