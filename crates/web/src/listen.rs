//! Listening sockets: a UNIX socket, a TCP port, and those that a service manager opened.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::net::{AddressFamily, sockopt};
use thermo_kernel::unix_socket::{self, SocketPath};

use crate::error::WebError;

/// Mode of the UNIX socket: its owner and group may connect.
const SOCKET_MODE: u32 = 0o660;

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Listens at `path`. Only a stale socket is ever replaced.
pub(crate) fn bind_unix(path: &Path) -> Result<(Listener, SocketPath), WebError> {
    let fail = |source| WebError::Socket {
        path: path.to_owned(),
        source,
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(fail)?;
    }
    let (listener, socket) = unix_socket::bind(path).map_err(|error| fail(explain(error)))?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE)).map_err(fail)?;
    Ok((Listener::Unix(listener), socket))
}

fn explain(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::AddrInUse {
        return io::Error::new(
            error.kind(),
            "another agent listens there. End it first, or give another path with --socket",
        );
    }
    error
}

/// Listens at `address`. Without protection, only the loopback interface is allowed.
pub(crate) fn bind_tcp(address: SocketAddr, protected: bool) -> Result<Listener, WebError> {
    check_protection(address, protected)?;
    let listener = TcpListener::bind(address).map_err(|source| WebError::Listen { address, source })?;
    Ok(Listener::Tcp(listener))
}

/// Uses a socket that a service manager opened.
pub(crate) fn inherit(fd: OwnedFd, protected: bool) -> Result<Listener, WebError> {
    let fail = |error: rustix::io::Errno| WebError::Inherited(error.into());
    if !sockopt::socket_acceptconn(&fd).map_err(fail)? {
        return Err(WebError::Inherited(io::Error::other("it does not listen")));
    }
    if sockopt::socket_domain(&fd).map_err(fail)? == AddressFamily::UNIX {
        return Ok(Listener::Unix(fd.into()));
    }
    let listener = TcpListener::from(fd);
    let address = listener.local_addr().map_err(WebError::Inherited)?;
    check_protection(address, protected)?;
    Ok(Listener::Tcp(listener))
}

fn check_protection(address: SocketAddr, protected: bool) -> Result<(), WebError> {
    if protected || address.ip().to_canonical().is_loopback() {
        Ok(())
    } else {
        Err(WebError::Unprotected(address))
    }
}
