//! The sockets that the server listens at.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use thermo_kernel::unix_socket::{self, SocketPath};

use super::ServerError;
use super::acceptor::Listener;
use crate::vhost::VhostListener;

/// Where the server listens.
#[derive(Debug)]
#[non_exhaustive]
pub enum Listen {
    /// A Unix socket at this path. A stale socket is replaced; any other file is refused.
    Unix(PathBuf),
    /// `ADDR:PORT`. Port 0 selects a free port.
    Tcp(String),
    /// A listening socket passed by a service manager.
    Socket(OwnedFd),
    /// A vhost-user-blk socket: an export as the disk of one virtual machine at a time.
    VhostUser {
        /// Path of the socket. A stale socket is replaced; any other file is refused.
        path: PathBuf,
        /// Name of the export.
        export: String,
    },
}

/// Open sockets. They are apart from the server, because opening them may need privileges that the server
/// does not need. Dropping them removes their paths.
#[derive(Debug, Default)]
pub struct Sockets {
    pub(super) listeners: Vec<Listener>,
    pub(super) paths: Vec<SocketPath>,
    pub(super) addrs: Vec<SocketAddr>,
    pub(super) vhost: Vec<VhostListener>,
}

impl Sockets {
    /// Opens all sockets of `listen`. No thread is started.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn open(listen: Vec<Listen>) -> Result<Self, ServerError> {
        let mut sockets = Self::default();
        for one in listen {
            let at = format!("{one:?}");
            sockets
                .add(one)
                .map_err(|source| ServerError::Listen { at, source })?;
        }
        Ok(sockets)
    }

    /// The folders of the sockets, which are removed at the end.
    pub fn folders(&self) -> impl Iterator<Item = PathBuf> {
        let vhost = self.vhost.iter().map(VhostListener::path);
        self.paths.iter().chain(vhost).map(SocketPath::folder)
    }

    fn add(&mut self, listen: Listen) -> io::Result<()> {
        match listen {
            Listen::VhostUser { path, export } => self.vhost.push(VhostListener::bind(&path, export)?),
            Listen::Unix(path) => {
                let (listener, path) = unix_socket::bind(&path)?;
                self.paths.push(path);
                self.listeners.push(Listener::Unix(listener).into_nonblocking()?);
            }
            Listen::Tcp(addr) => {
                let listener = TcpListener::bind(addr)?;
                self.addrs.push(listener.local_addr()?);
                self.listeners.push(Listener::Tcp(listener).into_nonblocking()?);
            }
            Listen::Socket(fd) => self.listeners.push(Listener::from_fd(fd)?),
        }
        Ok(())
    }
}
