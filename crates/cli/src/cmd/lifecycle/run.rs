//! `lifecycle run`: the daemon, in the foreground.

use std::path::PathBuf;

use anyhow::Context as _;
use thermo_agent::lifecycle::{Daemon, Decision, ListeningDaemon, Options};
use thermo_kernel::{clock, memlock, signals};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};
use thermo_units::{Nanos, printable};

use super::confinement::Confinement;
use super::{Common, accesses, default_socket, text};

/// `run CONFIG`.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// Description of the applications (TOML); docs/guide/lifecycle.md lists every key
    config: PathBuf,

    /// Disconnect clients that send nothing for this long
    #[arg(long, value_name = "TIME", default_value = "30s")]
    silent_after: Nanos,

    #[command(flatten)]
    confinement: Confinement,

    #[command(flatten)]
    common: Common,
}

impl Run {
    pub fn run(self) -> anyhow::Result<Exit> {
        interrupt::listen().context("cannot handle Ctrl-C")?;
        signals::reload_on_hangup().context("cannot handle SIGHUP")?;
        let socket = self.common.socket;
        let user = self.confinement.user()?;
        let daemon = ListeningDaemon::new(Options {
            // Without a default path (no XDG_RUNTIME_DIR), --socket is enough.
            default_socket: default_socket().or_else(|error| socket.clone().ok_or(error))?,
            socket,
            config: self.config,
            silent_after: self.silent_after,
            access_probe: accesses::of_this_host(),
        })?;
        // A reclaimer must not wait for its own pages. Without the right to lock memory it runs unlocked.
        let _ = memlock::lock_on_fault();
        self.confinement.apply(user)?;
        let mut daemon = daemon.start()?;
        for (app, pid) in daemon.missing() {
            let app = printable(app);
            thermo_kernel::message!(
                "thermo: {app}: there is no process {pid}; a later process with this ID does not count as {app}"
            );
        }
        thermo_kernel::message!("thermo: listening at {}", daemon.socket().display());
        let json = self.common.json;
        let mut write_error = None;
        let mut print = |decision: &Decision| {
            let value = decision.json(clock::wall_clock_offset_ns());
            let written = if json {
                output::json(&value)
            } else {
                output::text(&printable(&text::decision(&value)))
            };
            write_error = write_error.take().or(written.err());
        };
        daemon.run(&mut should_stop, &mut print)?;
        write_error.map_or(Ok(Exit::Interrupted), |error| Err(error.into()))
    }
}

/// Whether the daemon must stop. Handles SIGHUP, too.
fn should_stop(daemon: &mut Daemon) -> bool {
    if signals::take_hangup() {
        match daemon.reload() {
            Ok(()) => thermo_kernel::message!("thermo: the description was read again"),
            Err(error) => thermo_kernel::message!(
                "thermo: {}; the description stays unchanged",
                printable(&error.to_string())
            ),
        }
    }
    interrupt::requested()
}
