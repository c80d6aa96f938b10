//! The server: sockets that listen, a few workers for all clients, and a graceful end.

pub(crate) mod acceptor;
pub(crate) mod shared;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use thermo_pool::{OpenError, Pool, Pools};
use thermo_units::{Bytes, Nanos};

use crate::client::read_job::CHUNK;
use crate::export::Export;
use crate::protocol::handshake::Directory as _;
use crate::tls::Encryption;
use crate::vhost::VhostSocket;
use crate::wire::Socket;
use crate::worker::Worker;
use acceptor::Listener;
use shared::{Counts, Exports, Parked, STOP, Shared, locked};

/// Of the pool of bytes that were read and not understood; no export may have it.
const STASH: &str = "(stash)";
/// The largest stash.
const STASH_BYTES: usize = 64 << 10;

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
    /// A socket at `path` where a virtual machine finds an export as its disk (vhost-user-blk); one machine at a time.
    VhostUser {
        /// Where it is. One that nobody listens at any more is replaced.
        path: PathBuf,
        /// The name of the export.
        export: String,
    },
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
    /// A machine is to have a disk that is not there.
    #[error("no export is named {name:?}, which a virtual machine is to find at {}. There is {}", .path.display(), .there.join(", "))]
    NoExport {
        /// The socket.
        path: PathBuf,
        /// What was asked for.
        name: String,
        /// What there is.
        there: Vec<String>,
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
    /// Virtual machines that are connected.
    pub machines: usize,
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
    places: Vec<VhostSocket>,
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
            places: Vec::new(),
        };
        let listeners = server.listen(listen, pools)?;
        for number in 0..limits.workers.max(1) {
            let mut worker = Worker::new(Arc::clone(&server.shared));
            server
                .workers
                .push(spawn(&format!("nbd-{number}"), move || worker.run())?);
        }
        let shared = Arc::clone(&server.shared);
        server.door = Some(spawn("nbd-door", move || acceptor::keep(&shared, &listeners))?);
        Ok(server)
    }

    fn listen(&mut self, listen: Vec<Listen>, pools: &Pools) -> Result<Vec<Listener>, ServerError> {
        let mut listeners = Vec::new();
        for one in listen {
            let at = format!("{one:?}");
            let refused = |source| ServerError::Listen { at, source };
            match one {
                Listen::VhostUser { path, export } => {
                    let (export, pool) = self.disk(&path, &export, pools)?;
                    let shared = Arc::clone(&self.shared);
                    self.places
                        .push(VhostSocket::open(&path, export, pool, shared).map_err(refused)?);
                }
                Listen::Unix(path) => listeners.push(self.listen_unix(path).map_err(refused)?),
                Listen::Tcp(addr) => listeners.push(self.listen_tcp(&addr).map_err(refused)?),
                Listen::Socket(fd) => listeners.push(Listener::from_fd(fd).map_err(refused)?),
            }
        }
        Ok(listeners)
    }

    fn listen_unix(&mut self, path: PathBuf) -> io::Result<Listener> {
        acceptor::remove_stale(&path)?;
        let listener = UnixListener::bind(&path)?;
        self.sockets.push(path);
        Listener::Unix(listener).without_waiting()
    }

    fn listen_tcp(&mut self, addr: &str) -> io::Result<Listener> {
        let listener = TcpListener::bind(addr)?;
        self.addrs.push(listener.local_addr()?);
        Listener::Tcp(listener).without_waiting()
    }

    // An export for a machine, with a pool that its NBD clients cannot use up.
    fn disk(&self, path: &Path, name: &str, pools: &Pools) -> Result<(Arc<Export>, Pool), ServerError> {
        let exports = &self.shared.exports;
        let export = exports.named(name).ok_or_else(|| ServerError::NoExport {
            path: path.to_owned(),
            name: name.to_owned(),
            there: exports.names(),
        })?;
        let pool = open(pools, &format!("vhost-user {}", path.display()), CHUNK)?;
        Ok((Arc::clone(export), pool))
    }

    /// Serves one client that is connected already.
    ///
    /// # Errors
    /// When it is no socket.
    pub fn serve(&self, client: OwnedFd) -> io::Result<()> {
        acceptor::begin(&self.shared, Socket::from_fd(client)?)
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
            machines: self.places.iter().filter(|place| place.has_machine()).count(),
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
        self.places.clear();
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
    let with_pool = |export: Export| {
        let pool = open(pools, export.name(), CHUNK)?;
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
        stash: open(pools, STASH, STASH_BYTES)?,
        parked: Parked::default(),
        counts: Counts::default(),
        stop: AtomicBool::new(false),
        clients: Mutex::new(BTreeMap::new()),
        left: Condvar::new(),
        last_error: Mutex::new(None),
    })
}

fn open(pools: &Pools, name: &str, largest: usize) -> Result<Pool, ServerError> {
    pools
        .open(name, Bytes(largest as u64))
        .map_err(|source| ServerError::Pool {
            name: name.to_owned(),
            source,
        })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}
