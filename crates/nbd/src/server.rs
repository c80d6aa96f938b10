//! The server: sockets that listen, a thread for each client, and a graceful end.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thermo_core::{Bytes, Nanos};
use thermo_pool::{OpenError, Pools};

use crate::connection::{CHUNK, Exports, serve};
use crate::export::Export;
use crate::stream::Stream;

/// How soon a listening thread sees that the server ends.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Where clients come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A socket at this path. One that nobody listens at any more is replaced.
    Unix(PathBuf),
    /// `ADDR:PORT`; port 0 takes any that is free.
    Tcp(String),
}

/// What clients may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Clients at a time; more are hung up on.
    pub connections: usize,
    /// A client that stops in the middle of a request, or does not take its answer, is hung up on after this.
    pub stall: Nanos,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            stall: Nanos::secs(30),
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
    /// Why a connection last broke, if one did.
    pub last_error: Option<String>,
}

#[derive(Debug)]
struct Shared {
    exports: Exports,
    limits: Limits,
    stop: AtomicBool,
    clients: Mutex<BTreeMap<u64, Arc<Stream>>>,
    left: Condvar,
    accepted: AtomicU64,
    refused: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    sockets: Vec<PathBuf>,
    addrs: Vec<SocketAddr>,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Server {
    /// Serves `exports` at all of `listen`, each export with a pool of `pools` under its name.
    ///
    /// # Errors
    /// When nothing can listen there, or an export gets no pool.
    pub fn start(
        exports: Vec<Export>,
        listen: &[Listen],
        pools: &Pools,
        limits: Limits,
    ) -> Result<Self, ServerError> {
        let with_pool = |export: Export| match pools.open(export.name(), Bytes(CHUNK as u64)) {
            Ok(pool) => Ok((Arc::new(export), pool)),
            Err(source) => Err(ServerError::Pool {
                name: export.name().to_owned(),
                source,
            }),
        };
        let exports = exports.into_iter().map(with_pool).collect::<Result<_, _>>()?;
        let shared = Arc::new(Shared {
            exports: Exports(exports),
            limits,
            stop: AtomicBool::new(false),
            clients: Mutex::new(BTreeMap::new()),
            left: Condvar::new(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            last_error: Mutex::new(None),
        });
        let mut server = Self {
            shared,
            threads: Vec::new(),
            sockets: Vec::new(),
            addrs: Vec::new(),
        };
        for one in listen {
            server.listen(one).map_err(|source| ServerError::Listen {
                at: format!("{one:?}"),
                source,
            })?;
        }
        Ok(server)
    }

    fn listen(&mut self, listen: &Listen) -> io::Result<()> {
        let listener = match listen {
            Listen::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                self.sockets.push(path.clone());
                listener.set_nonblocking(true)?;
                Listener::Unix(listener)
            }
            Listen::Tcp(addr) => {
                let listener = TcpListener::bind(addr)?;
                self.addrs.push(listener.local_addr()?);
                listener.set_nonblocking(true)?;
                Listener::Tcp(listener)
            }
        };
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("nbd-listen".to_owned());
        self.threads
            .push(thread.spawn(move || accept_all(&shared, &listener))?);
        Ok(())
    }

    /// The TCP addresses it listens at.
    #[must_use]
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// What it does.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            connections: locked(&self.shared.clients).len(),
            accepted: self.shared.accepted.load(Ordering::Relaxed),
            refused: self.shared.refused.load(Ordering::Relaxed),
            last_error: locked(&self.shared.last_error).clone(),
        }
    }
}

impl Drop for Server {
    /// No client is accepted any more; those there get the answers to what they have sent, then the end.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has no reason to panic; if it did, it listens no more.
            let _ = thread.join();
        }
        for path in &self.sockets {
            let _ = std::fs::remove_file(path);
        }
        self.shared.drain();
    }
}

impl Shared {
    fn drain(&self) {
        let clients = locked(&self.clients);
        clients
            .values()
            .for_each(|stream| stream.shutdown(Shutdown::Read));
        let stall = Duration::from_nanos(self.limits.stall.0);
        let waited = self
            .left
            .wait_timeout_while(clients, stall, |clients| !clients.is_empty());
        let clients = waited.unwrap_or_else(PoisonError::into_inner).0;
        clients
            .values()
            .for_each(|stream| stream.shutdown(Shutdown::Both));
    }

    // A place for the client, or none when there are too many.
    fn admit(&self, stream: &Arc<Stream>) -> Option<u64> {
        let mut clients = locked(&self.clients);
        if clients.len() >= self.limits.connections {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let number = self.accepted.fetch_add(1, Ordering::Relaxed);
        clients.insert(number, Arc::clone(stream));
        Some(number)
    }

    fn leave(&self, number: u64) {
        locked(&self.clients).remove(&number);
        self.left.notify_all();
    }

    fn serve(&self, stream: &Stream) {
        let stall = self.limits.stall;
        let prepared = stream.prepare(Duration::from_nanos(stall.0));
        let outcome = prepared
            .map_err(Into::into)
            .and_then(|()| serve(stream, stream, &self.exports, stall));
        if let Err(error) = outcome {
            *locked(&self.last_error) = Some(error.to_string());
        }
        stream.shutdown(Shutdown::Both);
    }
}

fn accept_all(shared: &Arc<Shared>, listener: &Listener) {
    while !shared.stop.load(Ordering::Relaxed) {
        let mut fds = [PollFd::from_borrowed_fd(listener.fd(), PollFlags::IN)];
        if !matches!(poll(&mut fds, Some(&LOOK)), Ok(1..)) {
            continue;
        }
        match listener.accept() {
            Ok(stream) => start(shared, Arc::new(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                *locked(&shared.last_error) = Some(error.to_string());
                // No file descriptors left, most likely: some will be, when a client leaves.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn start(shared: &Arc<Shared>, stream: Arc<Stream>) {
    let Some(number) = shared.admit(&stream) else {
        return;
    };
    let ours = Arc::clone(shared);
    let client = move || {
        ours.serve(&stream);
        ours.leave(number);
    };
    if let Err(error) = std::thread::Builder::new()
        .name("nbd-client".to_owned())
        .spawn(client)
    {
        *locked(&shared.last_error) = Some(error.to_string());
        shared.leave(number);
    }
}

impl Listener {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
        }
    }
}

// A socket that a server left behind when it was killed. Anything else at the path stays, and binding fails.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_dead =
        || UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && is_dead() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
