//! What a service manager tells its services: systemd's memory pressure protocol (<https://systemd.io/MEMORY_PRESSURE>).
//!
//! `MEMORY_PRESSURE_WATCH` names a pressure file, a FIFO or a socket; what `MEMORY_PRESSURE_WRITE` holds, in base64, is
//! written there once. From a FIFO or a socket whatever comes is read and means pressure: by it an operator, or a
//! test, can squeeze a service by hand.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use thermo_units::Nanos;

use super::{Source, SourceError};

#[derive(Debug)]
enum Line {
    /// A pressure file: told by a priority event, never read.
    Psi(File),
    /// Told by bytes.
    Fifo(File),
    /// Told by bytes.
    Socket(UnixStream),
}

/// Listens to a service manager.
#[derive(Debug)]
pub struct Manager {
    path: PathBuf,
    line: Line,
}

impl Manager {
    /// Opens what `MEMORY_PRESSURE_WATCH` names and writes what `MEMORY_PRESSURE_WRITE` says.
    ///
    /// # Errors
    /// When it cannot be opened or written, or the text is no base64.
    pub fn new(watch: &Path, write: Option<&str>) -> Result<Self, SourceError> {
        let bytes = BASE64_STANDARD.decode(write.unwrap_or_default());
        let bytes = bytes.map_err(|error| SourceError::NotBase64 {
            text: write.unwrap_or_default().to_owned(),
            reason: error.to_string(),
        })?;
        match Line::open(watch, &bytes) {
            Ok(line) => Ok(Self {
                path: watch.to_owned(),
                line,
            }),
            Err(source) => Err(SourceError::Manager {
                path: watch.to_owned(),
                source,
            }),
        }
    }
}

impl Line {
    fn open(path: &Path, bytes: &[u8]) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_socket() {
            let mut socket = UnixStream::connect(path)?;
            socket.write_all(bytes)?;
            socket.set_nonblocking(true)?;
            return Ok(Self::Socket(socket));
        }
        // Also written to, so that a FIFO which nobody else has open does not look closed.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)?;
        if kind.is_fifo() {
            return Ok(Self::Fifo(file));
        }
        if !bytes.is_empty() {
            file.write_all(bytes)?;
        }
        Ok(Self::Psi(file))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Psi(file) | Self::Fifo(file) => file.as_fd(),
            Self::Socket(socket) => socket.as_fd(),
        }
    }

    fn has_news(&mut self) -> io::Result<bool> {
        let wanted = if matches!(self, Self::Psi(_)) {
            PollFlags::PRI
        } else {
            PollFlags::IN
        };
        let mut fds = [PollFd::from_borrowed_fd(self.fd(), wanted)];
        let events = match poll(&mut fds, Some(&Timespec::default())) {
            Ok(_) | Err(rustix::io::Errno::INTR) => fds[0].revents(),
            Err(errno) => return Err(errno.into()),
        };
        if events.contains(PollFlags::ERR) {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "what it belonged to is gone",
            ));
        }
        match self {
            Self::Psi(_) => Ok(events.contains(PollFlags::PRI)),
            Self::Fifo(file) => Ok(events.contains(PollFlags::IN) && drain(|bytes| file.read(bytes))?),
            Self::Socket(socket) => {
                Ok(events.intersects(PollFlags::IN | PollFlags::HUP) && drain(|bytes| socket.read(bytes))?)
            }
        }
    }
}

// Reads all there is now; the end of the line is an error, for nothing will ever come again.
fn drain(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<bool> {
    let mut bytes = [0; 4096];
    let mut some = false;
    loop {
        match read(&mut bytes) {
            // One more time with what came before the end.
            Ok(0) if some => return Ok(true),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => some = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(some),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Source for Manager {
    fn name(&self) -> String {
        format!("the service manager ({})", self.path.display())
    }

    fn check(&mut self, _now: Nanos) -> Result<Option<String>, SourceError> {
        match self.line.has_news() {
            Ok(news) => Ok(news.then(|| "the service manager says so".to_owned())),
            Err(source) => Err(SourceError::Manager {
                path: self.path.clone(),
                source,
            }),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn bytes_in_a_fifo_are_pressure_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let mut source = Manager::new(&path, None).unwrap();
        assert_eq!(source.check(Nanos::ZERO).unwrap(), None);
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .write_all(b"xx")
            .unwrap();
        assert!(source.check(Nanos::ZERO).unwrap().is_some());
        assert_eq!(source.check(Nanos::ZERO).unwrap(), None);
    }

    #[test]
    fn a_socket_is_told_what_to_write_and_its_end_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut source = Manager::new(&path, Some("aGVsbG8=")).unwrap();
        let (mut manager, _) = listener.accept().unwrap();
        let mut hello = [0; 5];
        manager.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"hello");
        manager.write_all(b"!").unwrap();
        assert!(source.check(Nanos::ZERO).unwrap().is_some());
        drop(manager);
        source.check(Nanos::ZERO).unwrap_err();
    }

    #[test]
    fn what_is_no_base64_or_not_there_is_said() {
        let wrong = Manager::new(Path::new("/dev/null"), Some("%")).unwrap_err();
        assert!(wrong.to_string().contains("not base64"));
        let missing = Manager::new(Path::new("/nowhere/fifo"), None).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/fifo"));
    }
}
