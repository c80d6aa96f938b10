//! The daemon in the foreground.

use std::path::PathBuf;

use anyhow::Context as _;
use thermo_agent::lifecycle::{Daemon, Decision, Options};
use thermo_kernel::{clock, memlock, signals};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};
use thermo_units::Nanos;

use super::{Common, accesses, default_socket, tell};

/// `run CONFIG`.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// The description of the applications (TOML); docs/guide/lifecycle.md tells of every key
    config: PathBuf,

    /// Let go of clients that ask nothing for this long
    #[arg(long, value_name = "TIME", default_value = "30s")]
    silent_after: Nanos,

    #[command(flatten)]
    common: Common,
}

impl Run {
    pub fn run(self) -> anyhow::Result<Exit> {
        interrupt::listen().context("cannot listen to Ctrl-C")?;
        signals::reload_on_hangup().context("cannot listen to SIGHUP")?;
        let named = self.common.socket;
        let mut daemon = Daemon::new(Options {
            // Only asked for where it is needed: it may be nowhere.
            default_socket: default_socket().or_else(|why| named.clone().ok_or(why))?,
            socket: named,
            config: self.config,
            silent_after: self.silent_after,
            accesses: accesses::of_this_host(),
        })?;
        // What reclaims must not wait for memory itself; where that is not allowed it goes without.
        let _ = memlock::lock_on_fault();
        for (app, pid) in daemon.missing() {
            eprintln!("{app}: there is no process {pid}; a later one of that number is not taken for it");
        }
        eprintln!("listening at {}", daemon.socket().display());
        let json = self.common.json;
        let mut broken = None;
        let mut told = |decision: &Decision| {
            let value = decision.json(clock::wall_clock_offset_ns());
            let written = if json {
                output::json(&value)
            } else {
                output::text(&tell::decision(&value))
            };
            broken = broken.take().or(written.err());
        };
        daemon.run(&mut stop, &mut told)?;
        broken.map_or(Ok(Exit::Interrupted), |why| Err(why.into()))
    }
}

/// Whether it ends; what was asked for by a hangup is done on the way.
fn stop(daemon: &mut Daemon) -> bool {
    if signals::take_hangup() {
        match daemon.reload() {
            Ok(()) => eprintln!("the description was read anew"),
            Err(why) => eprintln!("{why}; everything goes on as it was"),
        }
    }
    interrupt::asked()
}
