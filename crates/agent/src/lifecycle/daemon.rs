//! The daemon: puts the engine, the sources, the hands and the socket together.
//!
//! The thread that calls [`Daemon::run`] decides and answers; it never waits for memory to move. The others tell it
//! what they saw or did through one channel.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, TryLockError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use thermo_kernel::clock;
use thermo_units::{Nanos, Permille};

use super::app_processes::Hold;
use super::config::{Config, ConfigError};
use super::decision::Decision;
use super::engine::{Engine, Order};
use super::executor::Hands;
use super::sources::Accesses;
use super::state::StateEvent;
use super::table::Table;
use super::wire::{self, Request};
use super::{Cost, End, Profile, Rules};

mod answers;
mod server;
mod threads;

use server::Server;
use threads::Threads;

/// Nothing is waited for longer: signals come to any thread.
const LONGEST_WAIT: Nanos = Nanos::millis(500);

/// Why the daemon cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The description.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another one is there.
    #[error("a life cycle daemon answers at {} already: end it, or name another socket with --socket", .0.display())]
    Taken(PathBuf),
    /// The socket cannot be made.
    #[error("cannot make the socket {}: {source}", .path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread or a descriptor cannot be had.
    #[error("cannot begin: {0}")]
    System(#[from] io::Error),
}

/// How the daemon runs.
pub struct Options {
    /// The description, read anew by [`Daemon::reload`].
    pub config: PathBuf,
    /// The socket: wins over the description's.
    pub socket: Option<PathBuf>,
    /// Where it is when neither says so.
    pub default_socket: PathBuf,
    /// A client that says nothing for so long is let go of.
    pub silent_after: Nanos,
    /// Looks at accesses, where that can be done.
    pub accesses: Option<Box<dyn Accesses>>,
}

/// What other threads tell.
enum Event {
    Heard(String, StateEvent),
    Ended(u64, Cost),
}

/// Tells the deciding thread something and wakes it.
#[derive(Clone)]
struct Teller {
    events: Sender<Event>,
    wake: Arc<OwnedFd>,
}

impl Teller {
    fn tell(&self, event: Event) {
        // When nobody listens any more the daemon is ending.
        if self.events.send(event).is_ok() {
            let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// What one thread of hands is to do.
struct Task {
    job: u64,
    /// `None`: bring in.
    profile: Option<Profile>,
    hold: Arc<Mutex<Hold>>,
    swap_low: Permille,
    duty: Permille,
    since: Nanos,
    cancel: Arc<AtomicBool>,
}

/// The daemon.
pub struct Daemon {
    options: Options,
    config: Config,
    engine: Engine,
    table: Table,
    holds: BTreeMap<String, Arc<Mutex<Hold>>>,
    cancels: BTreeMap<u64, Arc<AtomicBool>>,
    events: Receiver<Event>,
    wake: Arc<OwnedFd>,
    threads: Threads,
    server: Server,
    requests: u64,
    longest_request: Nanos,
}

impl Daemon {
    /// Reads the description and listens.
    ///
    /// # Errors
    /// The description has a mistake, or the socket cannot be made.
    pub fn new(mut options: Options) -> Result<Self, DaemonError> {
        let root = Path::new("/");
        let config = Config::read(&options.config)?;
        let mut table = Table::new(root);
        table
            .configure(&config.apps)
            .map_err(|fault| ConfigError::Mistake {
                path: options.config.clone(),
                fault,
            })?;
        let socket = options.socket.clone().or_else(|| config.socket.clone());
        let server = Server::listen(&socket.unwrap_or_else(|| options.default_socket.clone()))?;
        let (sender, events) = mpsc::channel();
        let wake =
            Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(io::Error::from)?);
        let teller = Teller {
            events: sender,
            wake: Arc::clone(&wake),
        };
        let threads = Threads::start(root, &teller, options.accesses.take())?;
        let mut daemon = Self {
            options,
            config,
            engine: Engine::default(),
            table,
            holds: BTreeMap::new(),
            cancels: BTreeMap::new(),
            events,
            wake,
            threads,
            server,
            requests: 0,
            longest_request: Nanos::ZERO,
        };
        daemon.apply();
        Ok(daemon)
    }

    /// Where requests are taken.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.server.path()
    }

    /// Applications that name a process which is not there.
    pub fn missing(&self) -> impl Iterator<Item = (&str, u32)> {
        self.table.missing()
    }

    /// Reads the description anew; applications that stay keep their state and their history.
    ///
    /// # Errors
    /// It has a mistake; everything goes on as it was.
    pub fn reload(&mut self) -> Result<(), DaemonError> {
        let config = Config::read(&self.options.config)?;
        self.table
            .configure(&config.apps)
            .map_err(|fault| ConfigError::Mistake {
                path: self.options.config.clone(),
                fault,
            })?;
        self.config = config;
        self.apply();
        Ok(())
    }

    /// Goes on until `stop` says so; it is asked at least twice a second. `told` is given every decision, reclaims and
    /// prefetches once they ended.
    ///
    /// # Errors
    /// Waiting fails.
    pub fn run(
        &mut self,
        stop: &mut dyn FnMut(&mut Self) -> bool,
        told: &mut dyn FnMut(&Decision),
    ) -> io::Result<()> {
        while !stop(self) {
            self.take_events();
            self.engine.due(clock::monotonic(), &mut self.table);
            self.answer();
            self.carry_out();
            self.engine.told().iter().for_each(&mut *told);
            self.wait()?;
        }
        for cancel in self.cancels.values() {
            cancel.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Brings the description to the engine and the threads.
    fn apply(&mut self) {
        let rules = self
            .config
            .apps
            .iter()
            .map(|app| (app.name.clone(), app.rules.clone()));
        self.engine.configure(rules, clock::monotonic());
        self.holds
            .retain(|name, _| self.config.apps.iter().any(|app| app.name == *name));
        for app in &self.config.apps {
            let hold = self.holds.entry(app.name.clone());
            let hold = hold.or_insert_with(|| Arc::new(Mutex::new(Hold::new(Path::new("/")))));
            hold_now(hold, &mut self.table, &app.name);
        }
        self.threads
            .watch(self.table.copy(), self.config.apps.clone(), self.config.poll);
    }

    fn take_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            let now = clock::monotonic();
            match event {
                // It may have been taken out of the description meanwhile.
                Event::Heard(app, word) => drop(self.engine.hear(&app, word, now, &mut self.table)),
                Event::Ended(job, cost) => {
                    self.cancels.remove(&job);
                    self.engine.ended(job, cost, now);
                }
            }
        }
    }

    fn answer(&mut self) {
        let now = clock::monotonic();
        self.server.accept(now);
        for (client, uid, line) in self.server.read(now) {
            let began = clock::monotonic();
            let answer = match Request::parse(&line) {
                Ok(request) => self.grant(request, uid),
                Err(why) => wire::refused(&why.to_string()),
            };
            self.requests += 1;
            self.longest_request = self.longest_request.max(clock::monotonic().saturating_sub(began));
            self.server.answer(client, &answer);
        }
        self.server.write();
        self.server.let_go(self.options.silent_after, now);
    }

    fn carry_out(&mut self) {
        for order in self.engine.orders() {
            match order {
                Order::Cancel { job } => {
                    if let Some(cancel) = self.cancels.get(&job) {
                        cancel.store(true, Ordering::Release);
                    }
                }
                Order::Reclaim {
                    job,
                    app,
                    profile,
                    since,
                } => self.give(job, &app, Some(profile), since),
                Order::Prefetch { job, app, since } => self.give(job, &app, None, since),
            }
        }
    }

    fn give(&mut self, job: u64, app: &str, profile: Option<Profile>, since: Nanos) {
        let hold = self.holds.get(app);
        let Some(hold) = hold.filter(|hold| hold_now(hold, &mut self.table, app)) else {
            return self.engine.ended(job, Cost::of_nothing(End::Cancelled), since);
        };
        let described = self.config.apps.iter().find(|one| one.name == app);
        let swap_low = described.map_or(Rules::default().swap_low, |app| app.rules.swap_low);
        let cancel = Arc::new(AtomicBool::new(false));
        self.cancels.insert(job, Arc::clone(&cancel));
        self.threads.give(Task {
            job,
            profile,
            hold: Arc::clone(hold),
            swap_low,
            duty: self.config.duty,
            since,
            cancel,
        });
    }

    /// Waits for a client, another thread, or the time.
    fn wait(&mut self) -> io::Result<()> {
        let now = clock::monotonic();
        let due = self
            .engine
            .next_wake()
            .map_or(LONGEST_WAIT, |when| when.saturating_sub(now));
        let wait = due.min(LONGEST_WAIT);
        let timeout = Timespec {
            tv_sec: i64::try_from(wait.0 / 1_000_000_000).unwrap_or_default(),
            tv_nsec: i64::try_from(wait.0 % 1_000_000_000).unwrap_or_default(),
        };
        let mut fds = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        fds.extend(self.server.waits_for());
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Counts wakes; nothing to be read is no error.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        Ok(())
    }
}

/// Takes hold of the processes an application has now; false while another job still holds them.
fn hold_now(hold: &Mutex<Hold>, table: &mut Table, app: &str) -> bool {
    let mut hold = match hold.try_lock() {
        Ok(hold) => hold,
        // One that panicked left nothing half done: what is held is looked at anew.
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return false,
    };
    let pids = table.pids(app);
    hold.update(&pids);
    hold.keep(&table.confirm(app, &pids));
    true
}
