//! The socket of a connection, Unix or TCP, plain or with TLS. Never blocks.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustls::ServerConnection;

/// Send buffer of a socket: large enough for a large read, so that sending seldom stops halfway.
const SEND_BUFFER: usize = 1 << 20;

/// Encrypted data of one connection that the socket has not accepted yet: four TLS records. rustls keeps them
/// outside of the budget, so the limit is small.
const TLS_BUFFER_LIMIT: usize = 64 << 10;

/// Who is at the other end. The connections of one peer share a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The user id of a process on this machine.
    User(u32),
    /// This machine, over the loopback interface: a program chooses its address in 127.0.0.0/8.
    Loopback,
    /// An IPv4 address, or the first 64 bits of an IPv6 address: one host chooses the others as it likes.
    Address(IpAddr),
}

impl Peer {
    fn from_ip(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            ip if ip.is_loopback() => Self::Loopback,
            IpAddr::V6(ip) => Self::Address(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into()),
            ip @ IpAddr::V4(_) => Self::Address(ip),
        }
    }
}

/// A Unix or TCP socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// A connected stream socket opened by another process.
    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let family = rustix::net::sockopt::socket_domain(&fd)?;
        Ok(if family == rustix::net::AddressFamily::UNIX {
            Self::Unix(fd.into())
        } else {
            Self::Tcp(fd.into())
        })
    }

    pub(crate) fn peer(&self) -> io::Result<Peer> {
        match self {
            Self::Unix(stream) => {
                let credentials = rustix::net::sockopt::socket_peercred(stream)?;
                Ok(Peer::User(credentials.uid.as_raw()))
            }
            Self::Tcp(stream) => Ok(Peer::from_ip(stream.peer_addr()?.ip())),
        }
    }

    fn prepare(&self) -> io::Result<()> {
        // Failure is harmless: the default size works as well.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(self, SEND_BUFFER);
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            }
        }
    }

    fn shutdown(&self, how: Shutdown) {
        // Failure is harmless: the client has closed the connection.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        };
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&mut &*stream).read(bytes),
            Socket::Tcp(stream) => (&mut &*stream).read(bytes),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&mut &*stream).write(bytes),
            Socket::Tcp(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&mut &*stream).write_vectored(parts),
            Socket::Tcp(stream) => (&mut &*stream).write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket with optional TLS.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Socket,
    tls: OnceLock<Mutex<ServerConnection>>,
    /// Bytes received and sent, with TLS those of its records.
    transferred: AtomicU64,
}

impl Wire {
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        socket.prepare()?;
        let (tls, transferred) = (OnceLock::new(), AtomicU64::new(0));
        Ok(Self {
            socket,
            tls,
            transferred,
        })
    }

    /// Bytes received and sent so far.
    pub(crate) fn transferred(&self) -> u64 {
        self.transferred.load(Ordering::Relaxed)
    }

    // Calls `transfer` until no signal interrupts it, and counts the bytes.
    fn count(&self, mut transfer: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match transfer() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(len) => {
                    self.transferred.fetch_add(len as u64, Ordering::Relaxed);
                    return Ok(len);
                }
            }
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) {
        self.socket.shutdown(how);
    }

    /// Starts TLS.
    pub(crate) fn start_tls(&self, mut connection: ServerConnection) {
        connection.set_buffer_limit(Some(TLS_BUFFER_LIMIT));
        // Called once per connection: the handshake rejects a second STARTTLS.
        let _ = self.tls.set(Mutex::new(connection));
    }

    fn tls(&self) -> Option<MutexGuard<'_, ServerConnection>> {
        let tls = self.tls.get()?;
        Some(tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.get().is_some()
    }

    /// Receives available data. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if no data is available.
    pub(crate) fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(mut tls) = self.tls() else {
            return self.count(|| (&self.socket).read(bytes));
        };
        loop {
            match tls.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The end of the stream without close_notify is treated as a normal end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            let received = self.count(|| tls.read_tls(&mut &self.socket));
            // A TLS alert is sent before the error is returned.
            let processed = tls.process_new_packets();
            self.flush_tls(&mut tls)?;
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if received? == 0 {
                return Ok(0);
            }
        }
    }

    /// Sends as much of `parts` as fits.
    ///
    /// # Errors
    /// `WouldBlock` if nothing fits.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(mut tls) = self.tls() else {
            return self.count(|| (&self.socket).write_vectored(parts));
        };
        self.flush_tls(&mut tls)?;
        let taken = tls.writer().write_vectored(parts)?;
        self.flush_tls(&mut tls)?;
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    /// Whether encrypted data is still unsent after another attempt to send it.
    pub(crate) fn has_unsent(&self) -> io::Result<bool> {
        let Some(mut tls) = self.tls() else {
            return Ok(false);
        };
        self.flush_tls(&mut tls)?;
        Ok(tls.wants_write())
    }

    // Sends encrypted data until the socket is full.
    fn flush_tls(&self, tls: &mut ServerConnection) -> io::Result<()> {
        while tls.wants_write() {
            match self.count(|| tls.write_tls(&mut &self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn addresses_of_one_host_are_one_peer() {
        let peer = |ip: &str| Peer::from_ip(ip.parse().unwrap());
        assert_eq!(peer("10.0.0.1"), peer("::ffff:10.0.0.1"));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        for loopback in ["127.0.0.2", "127.255.0.9", "::ffff:127.0.0.3", "::1"] {
            assert_eq!(peer("127.0.0.1"), peer(loopback), "{loopback}");
        }
    }
}
