//! The daemon: connects the engine, the state sources, the executor threads and the socket.
//!
//! The thread that calls [`Daemon::run`] decides and answers requests. It never waits for reclaim or
//! prefetch. The other threads report state events and finished jobs through one channel.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, TryLockError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use thermo_kernel::clock;
use thermo_term::watchdog::Watchdog;
use thermo_units::{Nanos, Permille};

use super::app_processes::AppProcesses;
use super::config::{Config, ConfigError};
use super::decision::Decision;
use super::engine::{Engine, ExecutorCommand};
use super::executor::Executor;
use super::sources::AccessProbe;
use super::state::StateEvent;
use super::table::AppTable;
use super::wire::{self, Request};
use super::{JobCost, Outcome, Profile, Rules};

mod error;
mod requests;
mod server;
mod threads;

pub use error::DaemonError;
use server::Server;
use threads::Threads;

/// Maximum wait of the main loop. A signal may be delivered to another thread, so it does not end the wait.
const MAX_WAIT: Nanos = Nanos::millis(500);

/// Options of the daemon.
pub struct Options {
    /// Path of the configuration. [`Daemon::reload`] reads it again.
    pub config: PathBuf,
    /// Path of the socket; overrides the path in the configuration.
    pub socket: Option<PathBuf>,
    /// Path of the socket if neither `socket` nor the configuration gives one.
    pub default_socket: PathBuf,
    /// Disconnect clients that send no request for this long.
    pub silent_after: Nanos,
    /// Measures the accessed share of an application's memory, where the machine allows that.
    pub access_probe: Option<Box<dyn AccessProbe>>,
}

/// A daemon that listens, and has no threads yet: the moment to give up privileges, which threads inherit.
pub struct ListeningDaemon {
    options: Options,
    config: Config,
    table: AppTable,
    server: Server,
    watchdog: Option<Watchdog>,
}

/// A message from another thread.
enum Event {
    State(String, StateEvent),
    JobEnded(u64, JobCost),
}

/// Sends events to the main thread and wakes it.
#[derive(Clone)]
struct EventSender {
    events: Sender<Event>,
    wake: Arc<OwnedFd>,
}

impl EventSender {
    fn send(&self, event: Event) {
        // Sending fails only while the daemon ends.
        if self.events.send(event).is_ok() {
            let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// A job for an executor thread.
struct Task {
    job: u64,
    /// `None` for a prefetch.
    profile: Option<Profile>,
    processes: Arc<Mutex<AppProcesses>>,
    swap_low: Permille,
    duty: Permille,
    /// Time of the event that caused the job.
    since: Nanos,
    cancel: Arc<AtomicBool>,
}

/// The daemon.
pub struct Daemon {
    options: Options,
    config: Config,
    engine: Engine,
    table: AppTable,
    processes: BTreeMap<String, Arc<Mutex<AppProcesses>>>,
    cancels: BTreeMap<u64, Arc<AtomicBool>>,
    /// The user that set the state of an application as the owner of its processes.
    owner_states: BTreeMap<String, u32>,
    owners_checked_at: Nanos,
    events: Receiver<Event>,
    wake: Arc<OwnedFd>,
    threads: Threads,
    watchdog: Option<Watchdog>,
    server: Server,
    requests: u64,
    longest_request: Nanos,
}

impl ListeningDaemon {
    /// Reads the configuration and listens on the socket.
    ///
    /// # Errors
    /// The configuration cannot be used, the socket cannot be created, or systemd asks for a watchdog and
    /// cannot be reached.
    pub fn new(options: Options) -> Result<Self, DaemonError> {
        let mut table = AppTable::new(Path::new("/"));
        let config = load_config(&options.config, &mut table)?;
        let socket = options.socket.clone().or_else(|| config.socket.clone());
        let server = Server::listen(&socket.unwrap_or_else(|| options.default_socket.clone()))?;
        Ok(Self {
            options,
            config,
            table,
            server,
            watchdog: Watchdog::from_env()?,
        })
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// A thread or a descriptor cannot be created.
    pub fn start(self) -> Result<Daemon, DaemonError> {
        let Self {
            mut options,
            config,
            table,
            server,
            watchdog,
        } = self;
        let (sender, events) = mpsc::channel();
        let wake =
            Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(io::Error::from)?);
        let sender = EventSender {
            events: sender,
            wake: Arc::clone(&wake),
        };
        let threads = Threads::start(Path::new("/"), &sender, options.access_probe.take())?;
        let mut daemon = Daemon {
            options,
            config,
            engine: Engine::default(),
            table,
            processes: BTreeMap::new(),
            cancels: BTreeMap::new(),
            owner_states: BTreeMap::new(),
            owners_checked_at: Nanos::ZERO,
            events,
            wake,
            threads,
            watchdog,
            server,
            requests: 0,
            longest_request: Nanos::ZERO,
        };
        daemon.apply_config();
        Ok(daemon)
    }
}

impl Daemon {
    /// Path of the socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.server.path()
    }

    /// Applications configured by a PID that no process has, with that PID.
    pub fn missing(&self) -> impl Iterator<Item = (&str, u32)> {
        self.table.missing()
    }

    /// Reads the configuration again. Applications that remain keep their state and their decisions.
    ///
    /// # Errors
    /// The configuration cannot be used. The old one stays in force.
    pub fn reload(&mut self) -> Result<(), DaemonError> {
        self.config = load_config(&self.options.config, &mut self.table)?;
        self.apply_config();
        Ok(())
    }

    /// Runs until `stop` returns true. `stop` is called at least twice a second. `on_decision` gets every
    /// decision; those to reclaim or prefetch after the job ended.
    ///
    /// # Errors
    /// `poll(2)` fails, a thread has panicked, or systemd asks for a watchdog and cannot be reached.
    pub fn run(
        &mut self,
        stop: &mut dyn FnMut(&mut Self) -> bool,
        on_decision: &mut dyn FnMut(&Decision),
    ) -> Result<(), DaemonError> {
        while !stop(self) {
            self.threads.check()?;
            if let Some(watchdog) = &mut self.watchdog {
                watchdog.notify(clock::monotonic())?;
            }
            self.handle_events();
            self.check_owners();
            self.engine.retry_deferred(clock::monotonic(), &mut self.table);
            self.serve_clients();
            self.execute_orders();
            self.engine.take_decisions().iter().for_each(&mut *on_decision);
            self.wait()?;
        }
        for cancel in self.cancels.values() {
            cancel.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Passes the configuration to the engine and the threads.
    fn apply_config(&mut self) {
        let rules = self
            .config
            .apps
            .iter()
            .map(|app| (app.name.clone(), app.rules.clone()));
        self.engine.configure(rules, clock::monotonic());
        self.processes
            .retain(|name, _| self.config.apps.iter().any(|app| app.name == *name));
        for app in &self.config.apps {
            let processes = self.processes.entry(app.name.clone());
            let processes =
                processes.or_insert_with(|| Arc::new(Mutex::new(AppProcesses::new(Path::new("/")))));
            refresh_processes(processes, &mut self.table, &app.name);
        }
        self.threads
            .configure_sources(self.table.snapshot(), self.config.apps.clone(), self.config.poll);
    }

    fn handle_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            let now = clock::monotonic();
            match event {
                // Fails if a reload has removed the application.
                Event::State(app, event) => drop(self.engine.handle_event(&app, event, now, &mut self.table)),
                Event::JobEnded(job, cost) => {
                    self.cancels.remove(&job);
                    self.engine.job_ended(job, cost, now);
                }
            }
        }
    }

    fn check_owners(&mut self) {
        let now = clock::monotonic();
        if now.saturating_sub(self.owners_checked_at) >= self.config.poll {
            self.owners_checked_at = now;
            self.end_states_of_former_owners();
        }
    }

    fn serve_clients(&mut self) {
        let now = clock::monotonic();
        self.server.accept(now);
        for line in self.server.take_requests(now) {
            let start = clock::monotonic();
            let answer = match Request::parse(&line.text) {
                Ok(request) => self.handle_request(request, line.uid),
                Err(error) => wire::error_answer(&error.to_string()),
            };
            self.requests += 1;
            self.longest_request = self.longest_request.max(clock::monotonic().saturating_sub(start));
            self.server.answer(line.client, &answer);
        }
        self.server.write();
        self.server.disconnect_silent(self.options.silent_after, now);
    }

    fn execute_orders(&mut self) {
        for command in self.engine.take_commands() {
            match command {
                ExecutorCommand::Cancel { job } => {
                    if let Some(cancel) = self.cancels.get(&job) {
                        cancel.store(true, Ordering::Release);
                    }
                }
                ExecutorCommand::Reclaim {
                    job,
                    app,
                    profile,
                    since,
                } => self.start_job(job, &app, Some(profile), since),
                ExecutorCommand::Prefetch { job, app, since } => self.start_job(job, &app, None, since),
            }
        }
    }

    fn start_job(&mut self, job: u64, app: &str, profile: Option<Profile>, since: Nanos) {
        // The processes that authorised the job may have ended while it was deferred.
        if self.end_state_of_former_owner(app) {
            return self
                .engine
                .job_ended(job, JobCost::zero(Outcome::Cancelled), since);
        }
        let processes = self.processes.get(app);
        let Some(processes) =
            processes.filter(|processes| refresh_processes(processes, &mut self.table, app))
        else {
            return self
                .engine
                .job_ended(job, JobCost::zero(Outcome::Cancelled), since);
        };
        let config = self.config.apps.iter().find(|config| config.name == app);
        let swap_low = config.map_or(Rules::default().swap_low, |config| config.rules.swap_low);
        let cancel = Arc::new(AtomicBool::new(false));
        self.cancels.insert(job, Arc::clone(&cancel));
        self.threads.start_job(Task {
            job,
            profile,
            processes: Arc::clone(processes),
            swap_low,
            duty: self.config.duty,
            since,
            cancel,
        });
    }

    /// Waits for a client, an event, or the next deferred reclaim.
    fn wait(&mut self) -> io::Result<()> {
        let now = clock::monotonic();
        let due = self
            .engine
            .next_wake()
            .map_or(MAX_WAIT, |when| when.saturating_sub(now));
        let due = match &self.watchdog {
            Some(watchdog) => due.min(watchdog.next().saturating_sub(now)),
            None => due,
        };
        let wait = if self.server.has_requests() {
            Nanos::ZERO
        } else {
            due.min(MAX_WAIT)
        };
        let timeout = Timespec {
            tv_sec: i64::try_from(wait.0 / 1_000_000_000).unwrap_or_default(),
            tv_nsec: i64::try_from(wait.0 % 1_000_000_000).unwrap_or_default(),
        };
        let mut fds = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        fds.extend(self.server.poll_fds());
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Resets the eventfd. The read fails with EAGAIN if the eventfd was not signalled.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        Ok(())
    }
}

/// Reads the configuration at `path` and loads its applications into `table`. On error `table` is unchanged.
fn load_config(path: &Path, table: &mut AppTable) -> Result<Config, ConfigError> {
    let config = Config::read(path)?;
    table
        .configure(&config.apps)
        .map_err(|error| ConfigError::Invalid {
            path: path.to_owned(),
            error,
        })?;
    Ok(config)
}

/// Opens the processes that the application has now. Returns false while a job still uses them.
fn refresh_processes(processes: &Mutex<AppProcesses>, table: &mut AppTable, app: &str) -> bool {
    let mut processes = match processes.try_lock() {
        Ok(processes) => processes,
        // A job has panicked; the daemon ends in the next round.
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return false,
    };
    let pids = table.pids(app);
    processes.update(&pids);
    processes.retain(&table.verify(app, &pids));
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    struct PanickingProbe;

    impl AccessProbe for PanickingProbe {
        fn accessed_share(&mut self, _: &[u32], _: Nanos) -> Option<Permille> {
            panic!("as this test requires");
        }
    }

    #[test]
    fn panic_of_a_thread_ends_the_daemon_with_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("apps.toml");
        let mut idle = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let text = format!(
            "poll = \"10ms\"\n[[app]]\nname = \"a\"\npid = {}\nidle_after = \"1s\"\n",
            idle.id()
        );
        std::fs::write(&config, text).unwrap();
        let daemon = ListeningDaemon::new(Options {
            config,
            socket: Some(folder.path().join("s")),
            default_socket: PathBuf::new(),
            silent_after: Nanos::secs(30),
            access_probe: Some(Box::new(PanickingProbe)),
        });
        let mut daemon = daemon.unwrap().start().unwrap();
        let deadline = clock::monotonic() + Nanos::secs(60);
        let mut stop = |_: &mut Daemon| clock::monotonic() > deadline;
        let ended = daemon.run(&mut stop, &mut |_| {});
        idle.kill().unwrap();
        idle.wait().unwrap();
        let error = ended.unwrap_err().to_string();
        assert!(
            error.contains("thread \"sources\"") && error.contains("panicked"),
            "{error}"
        );
    }
}
