//! The second front end: an export as the disk of a virtual machine (vhost-user-blk).
//!
//! A machine connects to the socket, shares its memory, and puts requests into queues there; the protocol is QEMU's
//! (<https://qemu-project.gitlab.io/qemu/interop/vhost-user.html>), the requests are virtio's block device. Data
//! move between the guest's memory and the storage through buffers of a pool in the same byte budget as those of all
//! NBD clients: a queue that finds it used up waits, and under pressure what is free goes back.
//!
//! A machine is trusted no further than its own disk: see [`chain`] and [`request`]. One thing it can do, as with every
//! server that maps the memory of others: one that shrinks the file it shared kills whoever touches what was cut off.
//! VMMs that seal it (QEMU's `memory-backend-memfd`) cannot.

mod chain;
mod config;
mod request;
mod session;

use std::fmt::Display;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use thermo_pool::Pool;
use vhost::vhost_user::{Error as MessageError, Listener};
use vhost_user_backend::{Error as DaemonError, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

use crate::export::Export;
use crate::server::acceptor::remove_stale;
use crate::server::shared::Shared;
use session::Session;

/// After a machine could not be served, so that what makes it fail does not make us busy.
const PAUSE: Duration = Duration::from_millis(100);
/// How often, and how many times, it is seen whether the thread that was woken has ended.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS: usize = 500;

/// What the threads of a socket share.
#[derive(Debug)]
struct Device {
    export: Arc<Export>,
    pool: Pool,
    shared: Arc<Shared>,
    socket: PathBuf,
    /// True until the server ends.
    open: RwLock<bool>,
    has_machine: AtomicBool,
}

impl Device {
    fn door(&self) -> RwLockReadGuard<'_, bool> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, error: &dyn Display) {
        self.shared
            .note(&format_args!("the machine at {}: {error}", self.socket.display()));
    }
}

/// A socket where one machine at a time finds its disk.
#[derive(Debug)]
pub(crate) struct VhostSocket {
    device: Arc<Device>,
    thread: Option<JoinHandle<()>>,
}

impl VhostSocket {
    /// Waits at `socket` for a machine, and for the next when it left.
    pub(crate) fn open(
        socket: &Path,
        export: Arc<Export>,
        pool: Pool,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        remove_stale(socket)?;
        let listener = Listener::new(socket, false).map_err(|error| match error {
            MessageError::SocketError(error) => error,
            other => io::Error::other(other),
        })?;
        let device = Arc::new(Device {
            export,
            pool,
            shared,
            socket: socket.to_owned(),
            open: RwLock::new(true),
            has_machine: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&device);
        let thread = std::thread::Builder::new()
            .name("vhost-user".to_owned())
            .spawn(move || keep(&theirs, listener))?;
        Ok(Self {
            device,
            thread: Some(thread),
        })
    }

    /// True while a machine is connected.
    pub(crate) fn has_machine(&self) -> bool {
        self.device.has_machine.load(Ordering::SeqCst)
    }

    // The thread waits for a machine, which we play; with a real one it waits for that to leave, and is left to it.
    fn dismiss(&self, thread: JoinHandle<()>) {
        for _ in 0..LOOKS {
            if thread.is_finished() {
                // It has told what went wrong.
                let _ = thread.join();
                return;
            }
            if self.has_machine() || UnixStream::connect(&self.device.socket).is_err() {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for VhostSocket {
    /// What is being done is finished, nothing more is begun.
    fn drop(&mut self) {
        *self.device.open.write().unwrap_or_else(PoisonError::into_inner) = false;
        if let Some(thread) = self.thread.take() {
            self.dismiss(thread);
        }
        // Its listener may have removed it.
        let _ = std::fs::remove_file(&self.device.socket);
    }
}

fn keep(device: &Arc<Device>, mut listener: Listener) {
    while *device.door() {
        if let Err(error) = attend(device, &mut listener) {
            device.note(&error);
            std::thread::sleep(PAUSE);
        }
    }
}

// One machine, from its coming to its leaving.
fn attend(device: &Arc<Device>, listener: &mut Listener) -> Result<(), DaemonError> {
    let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
    let session = Arc::new(Session::new(device, memory.clone()));
    let mut daemon = VhostUserDaemon::new("vhost-messages".to_owned(), Arc::clone(&session), memory)?;
    daemon.start(listener)?;
    device.has_machine.store(*device.door(), Ordering::SeqCst);
    let ended = daemon.wait();
    session.is_over.store(true, Ordering::SeqCst);
    device.has_machine.store(false, Ordering::SeqCst);
    match ended {
        // Whether it says so or just goes.
        Err(DaemonError::HandleRequest(MessageError::Disconnected | MessageError::PartialMessage)) => Ok(()),
        other => other,
    }
}
