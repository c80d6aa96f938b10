//! A connection's socket, of either kind, in the clear or encrypted; never waits.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustls::ServerConnection;

/// Room for answers in the kernel: enough for a large read, so that sending it seldom stops halfway.
const SEND_ROOM: usize = 1 << 20;

/// Encrypted answers of one connection that the socket did not take yet: four records. The library that encrypts keeps
/// them outside of the budget, so it is little.
const TLS_ROOM: usize = 64 << 10;

/// A socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// A connected stream socket that somebody else opened.
    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let family = rustix::net::sockopt::socket_domain(&fd)?;
        Ok(if family == rustix::net::AddressFamily::UNIX {
            Self::Unix(fd.into())
        } else {
            Self::Tcp(fd.into())
        })
    }

    fn prepare(&self) -> io::Result<()> {
        // A socket that keeps its own size works as well.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(self, SEND_ROOM);
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            }
        }
    }

    fn shutdown(&self, how: Shutdown) {
        // One that the client closed is as shut as it gets.
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

/// A socket with or without encryption.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Socket,
    tls: OnceLock<Mutex<ServerConnection>>,
}

impl Wire {
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        socket.prepare()?;
        let tls = OnceLock::new();
        Ok(Self { socket, tls })
    }

    pub(crate) fn shutdown(&self, how: Shutdown) {
        self.socket.shutdown(how);
    }

    /// What comes from now on is encrypted.
    pub(crate) fn encrypt(&self, mut connection: ServerConnection) {
        connection.set_buffer_limit(Some(TLS_ROOM));
        // Begun once a connection: the handshake refuses a second time.
        let _ = self.tls.set(Mutex::new(connection));
    }

    fn tls(&self) -> Option<MutexGuard<'_, ServerConnection>> {
        let tls = self.tls.get()?;
        Some(tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.get().is_some()
    }

    /// Takes what has come; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has.
    pub(crate) fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(mut tls) = self.tls() else {
            return retried(|| (&self.socket).read(bytes));
        };
        loop {
            match tls.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // An end without a farewell: for us an end is an end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            let came = retried(|| tls.read_tls(&mut &self.socket));
            // The alert, if there is one, goes out before the error.
            let processed = tls.process_new_packets();
            drain(&mut tls, &self.socket)?;
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if came? == 0 {
                return Ok(0);
            }
        }
    }

    /// Sends of `parts` what fits.
    ///
    /// # Errors
    /// `WouldBlock` when nothing does.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(mut tls) = self.tls() else {
            return retried(|| (&self.socket).write_vectored(parts));
        };
        drain(&mut tls, &self.socket)?;
        let taken = tls.writer().write_vectored(parts)?;
        drain(&mut tls, &self.socket)?;
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    /// True when the socket has not taken yet what was encrypted; tries to send it.
    pub(crate) fn is_behind(&self) -> io::Result<bool> {
        let Some(mut tls) = self.tls() else {
            return Ok(false);
        };
        drain(&mut tls, &self.socket)?;
        Ok(tls.wants_write())
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

// Sends what is encrypted, as far as the socket takes it.
fn drain(tls: &mut ServerConnection, mut socket: &Socket) -> io::Result<()> {
    while tls.wants_write() {
        match retried(|| tls.write_tls(&mut socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
