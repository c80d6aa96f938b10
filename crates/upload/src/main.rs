//! The `thermo-upload` command: moves the fleet files of this machine to a store.
//!
//! [`spool`] finds the files that the agent has finished, [`store`] opens the store, and [`upload`] moves
//! one after the other. A program of its own, because the agent holds capabilities and has no network.

// `eprintln!` panics where standard error cannot be written: use `thermo_kernel::message!`.
#![cfg_attr(not(test), warn(clippy::print_stderr))]

#[cfg(test)]
mod documentation;
mod generate;
mod spool;
mod store;
mod upload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use clap::{CommandFactory, Parser};
use thermo_manual::completions;
use thermo_term::exit::Exit;
use thermo_term::{exit, interrupt};
use thermo_units::Nanos;

use crate::spool::Spool;
use crate::store::{Address, Store};
use crate::upload::Uploader;

/// Move the fleet files that the agent writes to an object store (S3) or another folder.
///
/// The agent needs `[export]` in its configuration. A file is removed here when the store has it. While the
/// store cannot be reached, files wait here, and the agent drops the oldest when they exceed `max_size`. Each
/// name depends only on cluster, node and time, so a file that is sent twice counts once.
///
/// Keys are read from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
/// AWS_REGION; without them, from the machine's role (instance metadata, web identity).
///
/// Exit codes: 0 done, 1 with `--once` some files are left, 2 error or misuse.
#[derive(Debug, Parser)]
#[command(
    name = "thermo-upload",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  thermo-upload --to s3://memory/fleet
  thermo-upload --to s3://memory/fleet --endpoint http://127.0.0.1:9000 --allow-http
  thermo-upload --from /var/lib/thermo/export --to /mnt/fleet --once"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Verb>,

    /// Folder with the files that wait
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/thermo/export")]
    from: PathBuf,

    /// Where to: `s3://BUCKET/PREFIX`, or a folder
    #[arg(long, value_name = "STORE", required = true)]
    to: Option<Address>,

    /// Address of an S3-compatible store that is not Amazon's
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,

    /// Allow an endpoint without TLS: keys and data are sent as they are
    #[arg(long)]
    allow_http: bool,

    /// How often to look for new files
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    every: Nanos,

    /// Move the files that wait now, then end
    #[arg(long)]
    once: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    #[command(hide = true)]
    Gen(thermo_manual::Gen),
}

fn main() -> ExitCode {
    completions::answer(Cli::command);
    exit::finish("thermo-upload", Cli::parse().run(), |_| exit::ERROR)
}

impl Cli {
    fn run(self) -> anyhow::Result<Exit> {
        if let Some(Verb::Gen(verb)) = self.command {
            return verb.run(&generate::PROGRAM);
        }
        ensure!(
            self.every > Nanos::ZERO,
            "--every 0s would never rest: give a time such as 30s"
        );
        let Some(address) = &self.to else {
            anyhow::bail!("--to is missing: name a store, such as s3://memory/fleet");
        };
        let spool = Spool::open(&self.from)?;
        let store = Store::open(address, self.endpoint.as_deref(), self.allow_http)?;
        interrupt::listen()?;
        let mut uploader = Uploader::new(spool, store);
        if self.once {
            let left = uploader.move_all()?;
            return Ok(if left == 0 { Exit::Done } else { Exit::Negative });
        }
        uploader.run(Duration::from_nanos(self.every.0));
        Ok(Exit::Done)
    }
}
