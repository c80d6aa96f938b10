//! The `thermo-nbd` command: a block server whose buffers stay inside one budget and go back under pressure.
//!
//! `serve` runs a server, `ask` talks to one that runs. The server itself is the library `thermo_nbd`. Data goes to
//! standard output, everything else to standard error.

mod activation;
mod ask;
mod control;
mod exports;
mod memory;
mod serve;
mod stats;

use std::process::ExitCode;

use clap::Parser;
use thermo_term::exit;

fn main() -> ExitCode {
    exit::code_of("thermo-nbd", serve::Cli::parse().run(), |_| exit::ERROR)
}
