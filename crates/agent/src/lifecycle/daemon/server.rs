//! The socket and its clients.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags};
use serde_json::Value;
use thermo_units::Nanos;

use super::DaemonError;
use crate::lifecycle::connection::Connection;
use crate::lifecycle::wire;

/// With more, the one that was silent longest is let go of.
const MOST_CLIENTS: usize = 64;
/// Read from one client in a round, so that none keeps the others waiting.
const AT_ONCE: usize = 16 << 10;

struct Client {
    stream: UnixStream,
    uid: u32,
    connection: Connection,
}

/// The socket. It is removed with this value.
pub(super) struct Server {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
    clients: BTreeMap<u64, Client>,
    next: u64,
}

impl Server {
    /// Listens at `path`. Everybody may connect: who may do what is told by whose connection it is.
    pub(super) fn listen(path: &Path) -> Result<Self, DaemonError> {
        let wrong = |source| DaemonError::Socket {
            path: path.to_owned(),
            source,
        };
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
            if UnixStream::connect(path).is_ok() {
                return Err(DaemonError::Taken(path.to_owned()));
            }
            // One that was killed left it.
            fs::remove_file(path).map_err(wrong)?;
        } else if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(wrong)?;
        }
        let listener = UnixListener::bind(path).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(wrong)?;
        Ok(Self {
            listener,
            inode: fs::symlink_metadata(path).map_err(wrong)?.ino(),
            path: path.to_owned(),
            clients: BTreeMap::new(),
            next: 0,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets in who waits.
    pub(super) fn accept(&mut self, now: Nanos) {
        while let Ok((stream, _)) = self.listener.accept() {
            let Ok(peer) = rustix::net::sockopt::socket_peercred(&stream) else {
                continue;
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() >= MOST_CLIENTS {
                let silent = self
                    .clients
                    .iter()
                    .min_by_key(|(_, client)| client.connection.heard_at());
                let silent = silent.map(|(id, _)| *id);
                silent.and_then(|id| self.clients.remove(&id));
            }
            let (uid, connection) = (peer.uid.as_raw(), Connection::new(now));
            self.clients.insert(
                self.next,
                Client {
                    stream,
                    uid,
                    connection,
                },
            );
            self.next += 1;
        }
    }

    /// The lines that came: from which client, of which user.
    pub(super) fn read(&mut self, now: Nanos) -> Vec<(u64, u32, Vec<u8>)> {
        let mut requests = Vec::new();
        let mut gone = Vec::new();
        for (id, client) in &mut self.clients {
            match client.lines(now) {
                Ok(lines) => requests.extend(lines.into_iter().map(|line| (*id, client.uid, line))),
                Err(_) => gone.push(*id),
            }
        }
        for id in gone {
            self.clients.remove(&id);
        }
        requests
    }

    pub(super) fn answer(&mut self, client: u64, answer: &Value) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.connection.answer(&answer.to_string());
        }
    }

    /// Writes what can be written.
    pub(super) fn write(&mut self) {
        self.clients
            .retain(|_, client| client.write().is_ok() && !client.connection.is_over());
    }

    /// Lets go of those who say nothing.
    pub(super) fn let_go(&mut self, after: Nanos, now: Nanos) {
        for client in self.clients.values_mut() {
            if client.connection.is_silent(after, now) && !client.connection.is_closing() {
                client.refuse(&format!(
                    "nothing was asked for {after}: connect again when there is something"
                ));
            }
        }
        self.write();
    }

    /// What a wait is to end at.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = PollFd<'_>> {
        let clients = self.clients.values().map(|client| {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, client.connection.has_unwritten());
            PollFd::from_borrowed_fd(client.stream.as_fd(), flags)
        });
        std::iter::once(PollFd::new(&self.listener, PollFlags::IN)).chain(clients)
    }
}

impl Client {
    fn lines(&mut self, now: Nanos) -> io::Result<Vec<Vec<u8>>> {
        let mut bytes = vec![0; AT_ONCE];
        let read = match self.stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(why) if is_later(&why) => return Ok(Vec::new()),
            Err(why) => return Err(why),
        };
        if self.connection.is_closing() {
            return Ok(Vec::new());
        }
        match self.connection.take_in(&bytes[..read], now) {
            Ok(lines) => Ok(lines),
            Err(_) => {
                self.refuse(&format!("a request is at most {} bytes long", wire::LONGEST_LINE));
                Ok(Vec::new())
            }
        }
    }

    fn refuse(&mut self, why: &str) {
        self.connection.answer(&wire::refused(why).to_string());
        self.connection.close();
    }

    fn write(&mut self) -> io::Result<()> {
        while self.connection.has_unwritten() {
            match self.stream.write(self.connection.unwritten()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(wrote) => self.connection.wrote(wrote),
                Err(why) if is_later(&why) => return Ok(()),
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}

fn is_later(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl Drop for Server {
    fn drop(&mut self) {
        // Somebody may have put another in its place.
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
