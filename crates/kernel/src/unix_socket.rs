//! Listening Unix sockets at a path (unix(7)): made without harm to any other file, and removed at the end.

use std::fs::{self, File, FileType};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};

/// Maximum time to wait for another server that starts in the same folder. Binding takes microseconds.
const LOCK_TIME: Duration = Duration::from_secs(2);

/// The path of a socket that this process listens at. Dropping it removes the path, unless another file took
/// its place.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    /// Device and inode of the socket.
    identity: (u64, u64),
}

impl SocketPath {
    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the path.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        folder_of(&self.path)
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // No error is reported: the next server replaces a socket that stays behind.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at `path`. A socket at which nobody listens (its server was killed) is replaced; no other file
/// ever is. Servers that start at once take turns by a lock of the folder (flock(2)): each would find a
/// socket without a server, also that of another one which does not listen yet.
///
/// # Errors
/// Another server listens there, the path is something else than a socket, or the kernel refuses.
pub fn bind(path: &Path) -> io::Result<(UnixListener, SocketPath)> {
    let _lock = lock_folder(path);
    match fs::symlink_metadata(path).map(|found| found.file_type()) {
        Ok(found) if !found.is_socket() => return Err(not_a_socket(path, found)),
        Ok(_) if is_stale(path) => fs::remove_file(path)?,
        // Without a file, or at the socket of a running server, the kernel's answer says it all.
        Ok(_) | Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    let identity = identity(path).inspect_err(|_| {
        // The path was free until now. If it cannot be removed either, the next server replaces it.
        let _ = fs::remove_file(path);
    })?;
    let path = path.to_owned();
    Ok((listener, SocketPath { path, identity }))
}

/// Locks the folder of `path` until the file is dropped. `None`: it cannot be opened or locked, or another
/// process keeps the lock. The lock prevents an accident only. So it must not prevent a start: everybody who
/// may read the folder can lock it.
fn lock_folder(path: &Path) -> Option<File> {
    let folder = File::open(folder_of(path)).ok()?;
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Some(folder),
        Err(Errno::WOULDBLOCK) => {}
        Err(_) => return None,
    }
    let (sender, receiver) = mpsc::channel();
    let wait = move || {
        if retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive)).is_ok() {
            // Fails after the time limit: nobody needs the lock then.
            let _ = sender.send(folder);
        }
    };
    thread::Builder::new().spawn(wait).ok()?;
    receiver.recv_timeout(LOCK_TIME).ok()
}

// Only this error says that no server listens. Without permission to connect, one may.
fn is_stale(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn not_a_socket(path: &Path, found: FileType) -> io::Error {
    let kind = match found {
        found if found.is_file() => "a regular file",
        found if found.is_dir() => "a directory",
        found if found.is_symlink() => "a symbolic link",
        found if found.is_fifo() => "a FIFO",
        _ => "a device",
    };
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!(
            "{} is {kind}, not a socket, and was not changed. Give another path, or remove it first",
            path.display()
        ),
    )
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn bind_replaces_stale_socket_and_drop_removes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (listener, socket) = bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        let taken = bind(&path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop((listener, socket));
        assert!(!path.exists());
    }

    #[test]
    fn bind_refuses_other_files_by_name_and_keeps_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("disk.img");
        fs::write(&file, "data").unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("s"), &link).unwrap();
        for (path, expected) in [
            (&file, "a regular file"),
            (&fifo, "a FIFO"),
            (&link, "a symbolic link"),
            (&dir.path().to_owned(), "a directory"),
            (&PathBuf::from("/dev/null"), "a device"),
        ] {
            let error = bind(path).unwrap_err().to_string();
            assert!(
                error.contains(expected) && error.contains(path.to_str().unwrap()),
                "{error}"
            );
            assert!(fs::symlink_metadata(path).is_ok(), "{}", path.display());
        }
        assert_eq!(fs::read(&file).unwrap(), b"data");
    }

    #[test]
    fn server_waits_for_another_one_that_starts_in_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        // What another server does between its checks and listening.
        let folder = File::open(dir.path()).unwrap();
        flock(&folder, FlockOperation::LockExclusive).unwrap();
        let waiter = format!(":{} ", fs::metadata(dir.path()).unwrap().ino());
        let path_of_second = path.clone();
        let second = thread::spawn(move || bind(&path_of_second));
        let waits = || {
            let locks = fs::read_to_string("/proc/locks").unwrap();
            locks
                .lines()
                .any(|line| line.contains("->") && line.contains(&waiter))
        };
        while !waits() && !second.is_finished() {
            thread::yield_now();
        }
        fs::remove_file(&path).unwrap();
        let _first = UnixListener::bind(&path).unwrap();
        drop(folder);
        let error = second.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn locked_folder_prevents_no_start() {
        let dir = tempfile::tempdir().unwrap();
        let folder = File::open(dir.path()).unwrap();
        flock(&folder, FlockOperation::LockExclusive).unwrap();
        bind(&dir.path().join("s")).unwrap();
    }

    #[test]
    fn drop_keeps_file_that_took_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (_listener, socket) = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "new").unwrap();
        drop(socket);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
