//! The server: listening sockets, a few workers for all clients, and a graceful shutdown.

pub(crate) mod acceptor;
mod limits;
pub(crate) mod shared;
mod sockets;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use thermo_kernel::unix_socket::SocketPath;
use thermo_pool::{OpenError, Pool, Pools};
use thermo_units::Bytes;

use crate::client::read_job::CHUNK_SIZE;
use crate::export::Export;
use crate::lock::locked;
use crate::protocol::handshake::Directory as _;
use crate::tls::Encryption;
use crate::vhost::{VhostListener, VhostSocket};
use crate::wire::Socket;
use crate::worker::Worker;
pub use limits::Limits;
use shared::{Counters, Exports, MemoryQueue, STOP, Shared};
pub use sockets::{Listen, Sockets};

/// Name of the pool for unparsed data. No export may use it.
const UNPARSED_POOL: &str = "(unparsed)";
/// Maximum unparsed data of one client, in bytes.
const MAX_UNPARSED: usize = 64 << 10;

/// The server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The socket cannot be opened.
    #[error("cannot listen at {at}: {source}")]
    Listen {
        /// The socket.
        at: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The export for a virtual machine does not exist.
    #[error("--vhost-user {} needs export {name:?}, which does not exist. Available: {}", .path.display(), .available.join(", "))]
    NoExport {
        /// The socket.
        path: PathBuf,
        /// The requested name.
        name: String,
        /// The existing exports.
        available: Vec<String>,
    },
    /// The name of the export is taken, or its pool does not fit in the budget.
    #[error("export {name:?}: {source}")]
    Pool {
        /// The export.
        name: String,
        /// The cause.
        source: OpenError,
    },
    /// A thread, epoll or eventfd cannot be created.
    #[error("the server cannot start: {0}")]
    Start(#[from] io::Error),
}

/// The status of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Connected clients.
    pub connections: usize,
    /// Clients accepted so far.
    pub accepted: u64,
    /// Clients disconnected because the limit was reached.
    pub refused: u64,
    /// Connections that ended with an error.
    pub connection_errors: u64,
    /// Requests answered.
    pub requests: u64,
    /// Bytes read.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
    /// Clients waiting for memory.
    pub waiting_for_memory: usize,
    /// Number of times that a client had to wait for memory.
    pub memory_waits: u64,
    /// Connected virtual machines.
    pub vhost_clients: usize,
    /// Number of clients of each export.
    pub clients_by_export: BTreeMap<String, usize>,
    /// Exports whose storage lost acknowledged writes. Their flushes fail until the server starts again.
    pub failed_exports: Vec<String>,
    /// The last connection error.
    pub last_error: Option<String>,
}

/// A running server. Dropping it shuts it down.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    stop: OwnedFd,
    socket_paths: Vec<SocketPath>,
    addrs: Vec<SocketAddr>,
    vhost_sockets: Vec<VhostSocket>,
}

impl Server {
    /// Serves `exports` at all `sockets`. Each export gets a pool of its own, under its name. Threads are
    /// started here and not before.
    ///
    /// # Errors
    /// A pool or a thread cannot be created, or the export for a virtual machine does not exist.
    pub fn start(
        exports: Vec<Export>,
        sockets: Sockets,
        pools: &Pools,
        limits: Limits,
        encryption: Option<Encryption>,
    ) -> Result<Self, ServerError> {
        let shared = Arc::new(build_shared(exports, pools, limits, encryption)?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        epoll::add(&shared.epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)
            .map_err(io::Error::from)?;
        let mut server = Self {
            shared,
            acceptor: None,
            workers: Vec::new(),
            stop,
            socket_paths: sockets.paths,
            addrs: sockets.addrs,
            vhost_sockets: Vec::new(),
        };
        for listener in sockets.vhost {
            let (export, pool) = server.vhost_export(&listener, pools)?;
            let shared = Arc::clone(&server.shared);
            server
                .vhost_sockets
                .push(VhostSocket::start(listener, export, pool, shared)?);
        }
        let listeners = sockets.listeners;
        for number in 0..limits.workers.max(1) {
            let mut worker = Worker::new(Arc::clone(&server.shared));
            server
                .workers
                .push(spawn(&format!("nbd-{number}"), move || worker.run())?);
        }
        let shared = Arc::clone(&server.shared);
        server.acceptor = Some(spawn("nbd-acceptor", move || acceptor::run(&shared, &listeners))?);
        Ok(server)
    }

    // The export for a vhost-user socket, with its own pool, which NBD clients cannot use up.
    fn vhost_export(
        &self,
        listener: &VhostListener,
        pools: &Pools,
    ) -> Result<(Arc<Export>, Pool), ServerError> {
        let (exports, path, name) = (&self.shared.exports, listener.path().path(), listener.export());
        let export = exports.named(name).ok_or_else(|| ServerError::NoExport {
            path: path.to_owned(),
            name: name.to_owned(),
            available: exports.names(),
        })?;
        let pool = open(pools, &format!("vhost-user {}", path.display()), CHUNK_SIZE)?;
        Ok((Arc::clone(export), pool))
    }

    /// Serves one connected client.
    ///
    /// # Errors
    /// The descriptor is not a socket.
    pub fn serve(&self, client: OwnedFd) -> io::Result<()> {
        acceptor::start_client(&self.shared, Socket::from_fd(client)?)
    }

    /// The TCP addresses the server listens at.
    #[must_use]
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// The current status.
    #[must_use]
    pub fn status(&self) -> Status {
        let (shared, counters) = (&self.shared, &self.shared.counters);
        let mut clients_by_export = BTreeMap::new();
        let clients = shared.all_clients();
        for session in clients.iter().filter_map(|client| client.session.get()) {
            *clients_by_export
                .entry(session.export.name().to_owned())
                .or_default() += 1;
        }
        Status {
            connections: clients.len(),
            accepted: counters.accepted.load(Ordering::Relaxed),
            refused: counters.refused.load(Ordering::Relaxed),
            connection_errors: counters.connection_errors.load(Ordering::Relaxed),
            requests: counters.requests.load(Ordering::Relaxed),
            read: Bytes(counters.read.load(Ordering::Relaxed)),
            written: Bytes(counters.written.load(Ordering::Relaxed)),
            waiting_for_memory: shared.memory_queue.len(),
            memory_waits: shared.memory_queue.wait_count.load(Ordering::Relaxed),
            vhost_clients: self
                .vhost_sockets
                .iter()
                .filter(|socket| socket.is_connected())
                .count(),
            clients_by_export,
            failed_exports: shared.exports.failed(),
            last_error: locked(&shared.last_error).clone(),
        }
    }

    // Waits until all clients are disconnected, or for `timeout`.
    fn wait_for_clients(&self, timeout: Duration) {
        let clients = locked(&self.shared.clients);
        let clients = self
            .shared
            .client_removed
            .wait_timeout_while(clients, timeout, |clients| !clients.is_empty());
        drop(clients.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Server {
    /// Accepts no new clients and requests, and answers the received requests as long as the clients receive
    /// replies.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(acceptor) = self.acceptor.take() {
            // A panic of the acceptor leaves no half-made change.
            let _ = acceptor.join();
        }
        self.vhost_sockets.clear();
        self.socket_paths.clear();
        for client in self.shared.all_clients() {
            client.wire.shutdown(Shutdown::Read);
        }
        self.wait_for_clients(Duration::from_nanos(self.shared.limits.stall_timeout.0));
        self.shared
            .all_clients()
            .iter()
            .for_each(|client| client.disconnect());
        // The event is level-triggered and never cleared, so every worker sees it.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

pub(crate) fn build_shared(
    exports: Vec<Export>,
    pools: &Pools,
    limits: Limits,
    encryption: Option<Encryption>,
) -> Result<Shared, ServerError> {
    let with_pool = |export: Export| {
        let pool = open(pools, export.name(), CHUNK_SIZE)?;
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
        unparsed_pool: open(pools, UNPARSED_POOL, MAX_UNPARSED)?,
        memory_queue: MemoryQueue::default(),
        counters: Counters::default(),
        stop: AtomicBool::new(false),
        clients: Mutex::new(BTreeMap::new()),
        client_removed: Condvar::new(),
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
