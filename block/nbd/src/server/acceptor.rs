//! Where clients come in, and where those that stopped are shown out: one thread.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thermo_kernel::clock;
use thermo_units::Nanos;

use super::shared::{Shared, locked};
use crate::client::Client;
use crate::client::outbox::Item;
use crate::protocol::handshake::{Handshake, Tls, greeting};
use crate::wire::{Socket, Wire};

/// How often clients are looked at.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// When others wait for memory, who does not go on for so long holds none.
const HOLD: Nanos = Nanos::millis(200);

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// One that somebody else opened.
    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let family = rustix::net::sockopt::socket_domain(&fd)?;
        let listener = if family == rustix::net::AddressFamily::UNIX {
            Self::Unix(fd.into())
        } else {
            Self::Tcp(fd.into())
        };
        listener.without_waiting()
    }

    pub(crate) fn without_waiting(self) -> io::Result<Self> {
        match &self {
            Self::Unix(listener) => listener.set_nonblocking(true)?,
            Self::Tcp(listener) => listener.set_nonblocking(true)?,
        }
        Ok(self)
    }

    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Unix(listener) => listener
                .accept()
                .map(|(stream, _): (UnixStream, _)| Socket::Unix(stream)),
            Self::Tcp(listener) => listener
                .accept()
                .map(|(stream, _): (TcpStream, _)| Socket::Tcp(stream)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// Lets clients in until the server ends.
pub(crate) fn keep(shared: &Shared, listeners: &[Listener]) {
    let mut looked = clock::monotonic();
    while !shared.stop.load(Ordering::SeqCst) {
        let mut fds: Vec<_> = listeners
            .iter()
            .map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN))
            .collect();
        let ready = poll(&mut fds, Some(&LOOK)).unwrap_or(0);
        if ready > 0 {
            let came = fds.iter().map(|fd| !fd.revents().is_empty());
            for (listener, _) in listeners.iter().zip(came).filter(|(_, came)| *came) {
                let_in(shared, listener);
            }
        }
        let now = clock::monotonic();
        if now.saturating_sub(looked) >= HOLD {
            show_out(shared, now);
            looked = now;
        }
    }
}

fn let_in(shared: &Shared, listener: &Listener) {
    match listener.accept() {
        Ok(socket) => {
            if let Err(error) = begin(shared, socket) {
                shared.note(&error);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => {
            shared.note(&error);
            // No file descriptors left, most likely: some will be, when a client leaves.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Begins to serve a client, unless there are too many.
pub(crate) fn begin(shared: &Shared, socket: Socket) -> io::Result<()> {
    if locked(&shared.clients).len() >= shared.limits.connections {
        shared.counts.refused.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    let number = shared.counts.accepted.fetch_add(1, Ordering::Relaxed);
    let tls = match &shared.encryption {
        None => Tls::None,
        Some(encryption) if encryption.required => Tls::Required,
        Some(_) => Tls::Offered,
    };
    let client = Arc::new(Client::new(number, Wire::new(socket)?, Handshake::new(tls)));
    shared.admit(&client)?;
    client.outbox.push(Item::Words {
        bytes: greeting(),
        sent: 0,
    });
    // A new socket has room for the greeting.
    let sent = client
        .outbox
        .pump(&client.wire, None, &mut |len| shared.stash.try_acquire(len));
    if sent.is_err() {
        client.hang_up();
        shared.remove(&client);
    }
    shared.arm(&client);
    Ok(())
}

// Clients that stopped in the middle of something.
fn show_out(shared: &Shared, now: Nanos) {
    let memory_is_wanted = shared.parked.is_waited_in();
    for client in shared.all() {
        let waited = client.waited(now);
        if waited >= shared.limits.stall {
            shared.note(&"a client stopped in the middle of something and was hung up on");
            client.hang_up();
            if client.running.load(Ordering::SeqCst) == 0 {
                shared.remove(&client);
            }
        } else if memory_is_wanted && waited >= HOLD {
            client.unload();
        }
    }
}

/// Removes a socket that a server left behind when it was killed. Anything else at the path stays, and binding fails.
pub(crate) fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_dead =
        || UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && is_dead() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}
