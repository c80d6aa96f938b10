//! The server: sockets that listen, a few workers for all clients, and a graceful end.

mod door;
pub(crate) mod shared;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use thermo_core::{Bytes, Nanos};
use thermo_pool::{OpenError, Pools};

use crate::client::read_job::CHUNK;
use crate::export::Export;
use crate::tls::Encryption;
use crate::wire::Socket;
use crate::worker::Worker;
use door::Listener;
use shared::{Counts, Exports, Parked, STOP, Shared, locked};

/// Of the pool of bytes that were read and not understood; no export may have it.
const STASH: &str = "(stash)";
/// The largest stash.
const STASH_BYTES: Bytes = Bytes::kib(64);

/// Where clients come.
#[derive(Debug)]
#[non_exhaustive]
pub enum Listen {
    /// A socket at this path. One that nobody listens at any more is replaced.
    Unix(PathBuf),
    /// `ADDR:PORT`; port 0 takes any that is free.
    Tcp(String),
    /// A socket that listens already: of the service manager.
    Socket(OwnedFd),
}

/// What clients may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Clients at a time; more are hung up on.
    pub connections: usize,
    /// Bytes of answers that wait to be sent to one client; then nothing more is read of it. Besides, each worker may
    /// be at one piece.
    pub client_bytes: Bytes,
    /// A client that stops in the middle of a request, or does not take its answer, is hung up on after this.
    pub stall: Nanos,
    /// Threads that serve clients. Those that wait for storage serve nobody else meanwhile.
    pub workers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            connections: 1024,
            client_bytes: Bytes::mib(4),
            stall: Nanos::secs(30),
            workers: (2 * cpus).clamp(4, 16),
        }
    }
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Nothing can listen there.
    #[error("cannot listen at {at}: {source}")]
    Listen {
        /// Where.
        at: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Its name is taken, or its pool does not fit the budget.
    #[error("export {name:?}: {source}")]
    Pool {
        /// The export.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// No thread, or nothing to wait with.
    #[error("the server cannot start: {0}")]
    Start(#[from] io::Error),
}

/// What the server does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Clients that are connected.
    pub connections: usize,
    /// Clients that came so far.
    pub accepted: u64,
    /// Clients that were hung up on because there were too many.
    pub refused: u64,
    /// Connections that ended otherwise than by the client's leave.
    pub broken: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes that were read.
    pub read: Bytes,
    /// Bytes that were written.
    pub written: Bytes,
    /// Clients that wait for memory.
    pub parked: usize,
    /// Times that a client had to wait for memory.
    pub parks: u64,
    /// Clients of each export.
    pub clients_of: BTreeMap<String, usize>,
    /// Why a connection last broke, if one did.
    pub last_error: Option<String>,
}

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    door: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    stop: OwnedFd,
    sockets: Vec<PathBuf>,
    addrs: Vec<SocketAddr>,
}

impl Server {
    /// Serves `exports` at all of `listen`, each export with a pool of `pools` under its name.
    ///
    /// # Errors
    /// When nothing can listen there, or an export gets no pool.
    pub fn start(
        exports: Vec<Export>,
        listen: Vec<Listen>,
        pools: &Pools,
        limits: Limits,
        encryption: Option<Encryption>,
    ) -> Result<Self, ServerError> {
        let shared = Arc::new(share(exports, pools, limits, encryption)?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        epoll::add(&shared.epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)
            .map_err(io::Error::from)?;
        let mut server = Self {
            shared,
            door: None,
            workers: Vec::new(),
            stop,
            sockets: Vec::new(),
            addrs: Vec::new(),
        };
        let mut listeners = Vec::new();
        for one in listen {
            let at = format!("{one:?}");
            listeners.push(
                server
                    .listen(one)
                    .map_err(|source| ServerError::Listen { at, source })?,
            );
        }
        for number in 0..limits.workers.max(1) {
            let mut worker = Worker::new(Arc::clone(&server.shared));
            server
                .workers
                .push(spawn(&format!("nbd-{number}"), move || worker.run())?);
        }
        let shared = Arc::clone(&server.shared);
        server.door = Some(spawn("nbd-door", move || door::keep(&shared, &listeners))?);
        Ok(server)
    }

    fn listen(&mut self, listen: Listen) -> io::Result<Listener> {
        let listener = match listen {
            Listen::Unix(path) => {
                door::remove_stale(&path)?;
                let listener = UnixListener::bind(&path)?;
                self.sockets.push(path);
                Listener::Unix(listener)
            }
            Listen::Tcp(addr) => {
                let listener = TcpListener::bind(addr)?;
                self.addrs.push(listener.local_addr()?);
                Listener::Tcp(listener)
            }
            Listen::Socket(fd) => Listener::from_fd(fd)?,
        };
        listener.set_nonblocking()?;
        Ok(listener)
    }

    /// Serves one client that is connected already.
    ///
    /// # Errors
    /// When it is no socket.
    pub fn serve(&self, client: OwnedFd) -> io::Result<()> {
        door::begin(&self.shared, Socket::from_fd(client)?)
    }

    /// The TCP addresses it listens at.
    #[must_use]
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// What it does.
    #[must_use]
    pub fn status(&self) -> Status {
        let (shared, counts) = (&self.shared, &self.shared.counts);
        let mut clients_of = BTreeMap::new();
        let clients = shared.all();
        for session in clients.iter().filter_map(|client| client.session.get()) {
            *clients_of.entry(session.export.name().to_owned()).or_default() += 1;
        }
        Status {
            connections: clients.len(),
            accepted: counts.accepted.load(Ordering::Relaxed),
            refused: counts.refused.load(Ordering::Relaxed),
            broken: counts.broken.load(Ordering::Relaxed),
            requests: counts.requests.load(Ordering::Relaxed),
            read: Bytes(counts.read.load(Ordering::Relaxed)),
            written: Bytes(counts.written.load(Ordering::Relaxed)),
            parked: shared.parked.len(),
            parks: shared.parked.times.load(Ordering::Relaxed),
            clients_of,
            last_error: locked(&shared.last_error).clone(),
        }
    }

    // No client of ours is left, or the time is over.
    fn wait_for_clients(&self, at_most: Duration) {
        let clients = locked(&self.shared.clients);
        let left = self
            .shared
            .left
            .wait_timeout_while(clients, at_most, |clients| !clients.is_empty());
        drop(left.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Server {
    /// No new clients, no new requests; what has come is answered, for as long as the clients take it.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(door) = self.door.take() {
            // It has nothing that could panic halfway through a change.
            let _ = door.join();
        }
        for path in &self.sockets {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
        for client in self.shared.all() {
            client.wire.shutdown(Shutdown::Read);
        }
        self.wait_for_clients(Duration::from_nanos(self.shared.limits.stall.0));
        self.shared.all().iter().for_each(|client| client.hang_up());
        // The event stays, so it reaches every worker.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn share(
    exports: Vec<Export>,
    pools: &Pools,
    limits: Limits,
    encryption: Option<Encryption>,
) -> Result<Shared, ServerError> {
    let open = |name: &str, largest| {
        pools.open(name, largest).map_err(|source| ServerError::Pool {
            name: name.to_owned(),
            source,
        })
    };
    let with_pool = |export: Export| {
        let pool = open(export.name(), Bytes(CHUNK as u64))?;
        Ok((Arc::new(export), pool))
    };
    let exports = exports
        .into_iter()
        .map(with_pool)
        .collect::<Result<_, ServerError>>()?;
    Ok(Shared {
        exports: Exports(exports),
        limits,
        encryption,
        epoll: epoll::create(CreateFlags::CLOEXEC).map_err(io::Error::from)?,
        stash: open(STASH, STASH_BYTES)?,
        parked: Parked::default(),
        counts: Counts::default(),
        stop: AtomicBool::new(false),
        clients: Mutex::new(BTreeMap::new()),
        left: Condvar::new(),
        last_error: Mutex::new(None),
    })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}
