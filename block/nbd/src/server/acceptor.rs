//! The acceptor thread: accepts clients and disconnects stalled ones.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thermo_kernel::clock;
use thermo_units::Nanos;

use super::shared::Shared;
use crate::client::Client;
use crate::client::outbox::Item;
use crate::protocol::handshake::{Handshake, Tls, greeting};
use crate::wire::{Socket, Wire};

/// Poll timeout; bounds the delay of the stall check.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Pause after an error of the kernel that may pass.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// When other clients wait for memory, a client that makes no progress for this long must free its buffers.
const MAX_HOLD: Nanos = Nanos::millis(200);

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// A listening socket opened by another process.
    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let family = rustix::net::sockopt::socket_domain(&fd)?;
        let listener = if family == rustix::net::AddressFamily::UNIX {
            Self::Unix(fd.into())
        } else {
            Self::Tcp(fd.into())
        };
        listener.into_nonblocking()
    }

    pub(crate) fn into_nonblocking(self) -> io::Result<Self> {
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

/// Accepts clients until the server ends.
pub(crate) fn run(shared: &Shared, listeners: &[Listener]) {
    let mut last_check = clock::monotonic();
    while !shared.stop.load(Ordering::SeqCst) {
        let mut poll_fds: Vec<_> = listeners
            .iter()
            .map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN))
            .collect();
        let ready = poll(&mut poll_fds, Some(&POLL_INTERVAL)).unwrap_or_else(|errno| {
            if errno != rustix::io::Errno::INTR {
                // Out of memory.
                shared.record_error(&io::Error::from(errno));
                std::thread::sleep(RETRY_INTERVAL);
            }
            0
        });
        if ready > 0 {
            let is_ready = poll_fds.iter().map(|fd| !fd.revents().is_empty());
            for (listener, _) in listeners.iter().zip(is_ready).filter(|(_, is_ready)| *is_ready) {
                accept_client(shared, listener);
            }
        }
        let now = clock::monotonic();
        if now.saturating_sub(last_check) >= MAX_HOLD {
            disconnect_stalled(shared, now);
            last_check = now;
        }
    }
}

fn accept_client(shared: &Shared, listener: &Listener) {
    match listener.accept() {
        Ok(socket) => {
            if let Err(error) = start_client(shared, socket) {
                shared.record_error(&error);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => {
            shared.record_error(&error);
            // Most likely out of file descriptors. Retry after a client may have disconnected.
            std::thread::sleep(RETRY_INTERVAL);
        }
    }
}

/// Starts to serve a client, unless a limit is reached.
pub(crate) fn start_client(shared: &Shared, socket: Socket) -> io::Result<()> {
    let peer = socket.peer()?;
    if !shared.admits(peer) {
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    let number = shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
    let tls = match &shared.encryption {
        None => Tls::None,
        Some(encryption) if encryption.required => Tls::Required,
        Some(_) => Tls::Offered,
    };
    let client = Arc::new(Client::new(number, peer, Wire::new(socket)?, Handshake::new(tls)));
    shared.add_client(&client)?;
    client.outbox.push(Item::Bytes {
        bytes: greeting(),
        sent: 0,
    });
    // The greeting fits in the send buffer of a new socket.
    let sent = client.outbox.send_queued(&client.wire, None, &mut |len| {
        shared.unparsed_pool.try_acquire(len)
    });
    if sent.is_err() {
        client.disconnect();
        shared.remove(&client);
    }
    shared.arm(&client);
    Ok(())
}

// Disconnects stalled clients, and frees buffers of slow clients while others wait for memory.
fn disconnect_stalled(shared: &Shared, now: Nanos) {
    let memory_is_needed = shared.memory_queue.has_waiters();
    let timeout = shared.limits.stall_timeout;
    for client in shared.all_clients() {
        let waited_for = client.waited_for(now);
        let is_late = client.handshake_time(now) >= timeout;
        if is_late || waited_for >= timeout {
            let activity = if is_late {
                "its handshake"
            } else {
                "a request or reply"
            };
            shared.record_error(&format_args!(
                "a client did not finish {activity} within {timeout} and was disconnected"
            ));
            client.disconnect();
            if client.active_workers.load(Ordering::SeqCst) == 0 {
                shared.remove(&client);
            }
        } else if memory_is_needed && waited_for >= MAX_HOLD {
            client.drop_buffers();
        }
    }
}
