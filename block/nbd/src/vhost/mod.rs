//! vhost-user-blk: an export as the disk of a virtual machine.
//!
//! A VMM connects to the socket, shares the guest memory, and places requests in virtqueues there. The
//! protocol is QEMU's (<https://qemu-project.gitlab.io/qemu/interop/vhost-user.html>); requests are those of
//! the virtio block device. Data moves between guest memory and storage through buffers of a pool, in the
//! same byte budget as the buffers of NBD clients. A queue waits while the budget is used up, and free
//! buffers are released under memory pressure.
//!
//! A guest can only harm its own disk: see [`chain`] and [`request`]. Its memory must be sealed against
//! shrinking, because the server would be killed by an access to truncated memory: see [`memory`].

// Reads what others wrote: an index that could panic or a cast that could lose bits is an error here
// (CONTRIBUTING.md, Style).
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub(crate) mod chain;
mod config;
mod memory;
pub(crate) mod request;
mod session;

use std::fmt::Display;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use thermo_kernel::unix_socket::{self, SocketPath};
use thermo_pool::Pool;
use vhost::vhost_user::{Error as MessageError, Listener};
use vhost_user_backend::{Error as DaemonError, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

use crate::export::Export;
use crate::server::shared::Shared;
use session::Session;

/// Pause after a failed session, so that a persistent failure does not cause a busy loop.
const PAUSE: Duration = Duration::from_millis(100);
/// Polling interval and number of polls for the end of the thread at shutdown.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const MAX_POLLS: usize = 500;

/// State shared by the threads of a vhost-user socket.
#[derive(Debug)]
pub(crate) struct Device {
    export: Arc<Export>,
    pool: Pool,
    shared: Arc<Shared>,
    socket: PathBuf,
    /// False once the server shuts down.
    accepting: RwLock<bool>,
    is_connected: AtomicBool,
}

impl Device {
    /// A device whose socket is at `socket`.
    pub(crate) fn new(export: Arc<Export>, pool: Pool, shared: Arc<Shared>, socket: &Path) -> Self {
        Self {
            export,
            pool,
            shared,
            socket: socket.to_owned(),
            accepting: RwLock::new(true),
            is_connected: AtomicBool::new(false),
        }
    }

    fn accepting(&self) -> RwLockReadGuard<'_, bool> {
        self.accepting.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_error(&self, error: &dyn Display) {
        self.shared.record_error(&format_args!(
            "virtual machine at {}: {error}",
            self.socket.display()
        ));
    }
}

/// A listening vhost-user socket. Dropping it removes the path.
#[derive(Debug)]
pub(crate) struct VhostListener {
    listener: UnixListener,
    path: SocketPath,
    export: String,
}

impl VhostListener {
    /// Listens at `socket`, for the disk of the export called `export`.
    pub(crate) fn bind(socket: &Path, export: String) -> io::Result<Self> {
        let (listener, path) = unix_socket::bind(socket)?;
        Ok(Self {
            listener,
            path,
            export,
        })
    }

    pub(crate) const fn path(&self) -> &SocketPath {
        &self.path
    }

    pub(crate) fn export(&self) -> &str {
        &self.export
    }
}

/// A vhost-user socket, which serves one virtual machine at a time.
#[derive(Debug)]
pub(crate) struct VhostSocket {
    device: Arc<Device>,
    thread: Option<JoinHandle<()>>,
    /// Removes the socket, even if a machine is still connected.
    _path: SocketPath,
}

impl VhostSocket {
    /// Serves virtual machines at `listener`, one after the other.
    pub(crate) fn start(
        listener: VhostListener,
        export: Arc<Export>,
        pool: Pool,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let VhostListener { listener, path, .. } = listener;
        let listener = Listener::from(listener);
        let device = Arc::new(Device::new(export, pool, shared, path.path()));
        let thread_device = Arc::clone(&device);
        let thread = std::thread::Builder::new()
            .name("vhost-user".to_owned())
            .spawn(move || accept_loop(&thread_device, listener))?;
        Ok(Self {
            device,
            thread: Some(thread),
            _path: path,
        })
    }

    /// Whether a virtual machine is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.device.is_connected.load(Ordering::SeqCst)
    }

    // Ends the thread. If it waits for a connection, connecting once wakes it. If a VM is connected, it ends
    // when that VM disconnects, and is not waited for.
    fn join_thread(&self, thread: JoinHandle<()>) {
        for _ in 0..MAX_POLLS {
            if thread.is_finished() {
                // It has recorded its error.
                let _ = thread.join();
                return;
            }
            if self.is_connected() || UnixStream::connect(&self.device.socket).is_err() {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for VhostSocket {
    /// Finishes running requests and starts no more.
    fn drop(&mut self) {
        *self
            .device
            .accepting
            .write()
            .unwrap_or_else(PoisonError::into_inner) = false;
        if let Some(thread) = self.thread.take() {
            self.join_thread(thread);
        }
    }
}

fn accept_loop(device: &Arc<Device>, mut listener: Listener) {
    while *device.accepting() {
        if let Err(error) = serve_connection(device, &mut listener) {
            device.record_error(&error);
            std::thread::sleep(PAUSE);
        }
    }
}

// Serves one virtual machine from connection to disconnection.
pub(crate) fn serve_connection(device: &Arc<Device>, listener: &mut Listener) -> Result<(), DaemonError> {
    let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
    let session = Arc::new(Session::new(device));
    let mut daemon = VhostUserDaemon::new("vhost-messages".to_owned(), Arc::clone(&session), memory)?;
    daemon.start(listener)?;
    device.is_connected.store(*device.accepting(), Ordering::SeqCst);
    let ended = daemon.wait();
    session.is_finished.store(true, Ordering::SeqCst);
    device.is_connected.store(false, Ordering::SeqCst);
    match ended {
        // A disconnect, announced or not, is no error.
        Err(DaemonError::HandleRequest(MessageError::Disconnected | MessageError::PartialMessage)) => Ok(()),
        other => other,
    }
}
