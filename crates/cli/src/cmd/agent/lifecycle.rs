//! The life cycle of applications as a part of the agent: the daemon of `thermo lifecycle`, in a thread, at
//! its usual socket. Its decisions are among those of the agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use thermo_agent::api::{self, DecisionKind};
use thermo_agent::lifecycle::{Daemon, Decision, ListeningDaemon, Options};
use thermo_agent::service::Shared;
use thermo_kernel::clock;
use thermo_units::Nanos;

use crate::cmd::lifecycle;

/// Clients that send nothing for this long are disconnected.
const SILENT_AFTER: Nanos = Nanos::secs(30);

/// The daemon in its thread.
pub(super) struct Lifecycle {
    thread: JoinHandle<anyhow::Result<()>>,
    orders: Arc<Orders>,
}

/// What the agent wants of the thread.
#[derive(Debug, Default)]
struct Orders {
    stop: AtomicBool,
    reload: AtomicBool,
}

impl Lifecycle {
    /// Starts the daemon with the description `config`, at `socket` unless the description names another.
    ///
    /// # Errors
    /// The description has a mistake, or the socket cannot be opened.
    pub(super) fn start(config: &Path, socket: PathBuf, shared: Arc<Shared>) -> anyhow::Result<Self> {
        let listening = ListeningDaemon::new(Options {
            default_socket: socket,
            socket: None,
            config: config.to_owned(),
            silent_after: SILENT_AFTER,
            access_probe: lifecycle::access_probe(),
        })?;
        let daemon = listening.start()?;
        thermo_kernel::message!(
            "thermo: applications report their state at {}",
            daemon.socket().display()
        );
        let orders = Arc::new(Orders::default());
        let seen = Arc::clone(&orders);
        let thread = thread::Builder::new()
            .name("lifecycle".to_owned())
            .spawn(move || run(daemon, &seen, &shared))
            .context("cannot start the thread of the life cycle")?;
        Ok(Self { thread, orders })
    }

    /// Makes the daemon read its description again.
    pub(super) fn reload(&self) {
        self.orders.reload.store(true, Ordering::Relaxed);
    }

    /// Whether the thread has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the daemon.
    ///
    /// # Errors
    /// It had failed.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.orders.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn run(mut daemon: Daemon, orders: &Orders, shared: &Shared) -> anyhow::Result<()> {
    let mut should_stop = |daemon: &mut Daemon| {
        if orders.reload.swap(false, Ordering::Relaxed)
            && let Err(error) = daemon.reload()
        {
            let error = error.to_string();
            thermo_kernel::message!(
                "thermo: {}; the description stays unchanged",
                thermo_units::printable(&error)
            );
        }
        orders.stop.load(Ordering::Relaxed)
    };
    let mut record = |decision: &Decision| {
        let offset = clock::wall_clock_offset_ns();
        let time_ms = decision.at.0.saturating_add_signed(offset) / 1_000_000;
        let why = lifecycle::decision_text(&decision.json(offset));
        let decision = api::Decision {
            policy: "lifecycle".to_owned(),
            target: Some(decision.app.clone()),
            kind: DecisionKind::Application,
            why: why.trim_end().replace('\n', "; "),
            ..api::Decision::default()
        };
        shared.decisions().add(time_ms, decision);
    };
    Ok(daemon.run(&mut should_stop, &mut record)?)
}
