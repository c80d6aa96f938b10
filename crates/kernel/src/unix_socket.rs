//! Listening Unix sockets at a path (unix(7)): made without harm to any other file, and removed at the end.

use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

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
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        }
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
/// ever is.
///
/// # Errors
/// Another server listens there, the path is something else than a socket, or the kernel refuses.
pub fn bind(path: &Path) -> io::Result<(UnixListener, SocketPath)> {
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
