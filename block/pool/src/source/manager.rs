//! The pressure notifications of a service manager: systemd's protocol
//! (<https://systemd.io/MEMORY_PRESSURE>).
//!
//! `MEMORY_PRESSURE_WATCH` names a pressure file, a FIFO or a socket. `MEMORY_PRESSURE_WRITE` holds base64
//! data to write there once. Any data from a FIFO or socket is read, discarded, and means pressure. So an
//! operator or a test can squeeze a service manually.

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
enum Channel {
    /// A pressure file: signals by a priority event, never read.
    Psi(File),
    /// Signals by sending bytes.
    Fifo(File),
    /// Signals by sending bytes.
    Socket(UnixStream),
}

/// Receives pressure notifications of a service manager.
#[derive(Debug)]
pub struct ServiceManager {
    path: PathBuf,
    channel: Channel,
}

impl ServiceManager {
    /// Opens the file that `MEMORY_PRESSURE_WATCH` names, and writes the data of `MEMORY_PRESSURE_WRITE` to
    /// it.
    ///
    /// # Errors
    /// The file cannot be opened or written, or the data is not base64.
    pub fn new(watch: &Path, write: Option<&str>) -> Result<Self, SourceError> {
        let bytes = BASE64_STANDARD.decode(write.unwrap_or_default());
        let bytes = bytes.map_err(|error| SourceError::NotBase64 {
            text: write.unwrap_or_default().to_owned(),
            reason: error.to_string(),
        })?;
        match Channel::open(watch, &bytes) {
            Ok(channel) => Ok(Self {
                path: watch.to_owned(),
                channel,
            }),
            Err(source) => Err(SourceError::ServiceManager {
                path: watch.to_owned(),
                source,
            }),
        }
    }
}

impl Channel {
    fn open(path: &Path, bytes: &[u8]) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_socket() {
            let mut socket = UnixStream::connect(path)?;
            socket.write_all(bytes)?;
            socket.set_nonblocking(true)?;
            return Ok(Self::Socket(socket));
        }
        // Opened for writing as well, so that a FIFO without other writers does not report end of file.
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

    fn has_signal(&mut self) -> io::Result<bool> {
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
                "the control group no longer exists",
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

// Reads all available data; returns whether there was any. End of file is an error, because no data can
// follow.
fn drain(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<bool> {
    let mut bytes = [0; 4096];
    let mut any_read = false;
    loop {
        match read(&mut bytes) {
            // Report the data that preceded the end of file; the next check reports the error.
            Ok(0) if any_read => return Ok(true),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => any_read = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(any_read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Source for ServiceManager {
    fn name(&self) -> String {
        format!("the service manager ({})", self.path.display())
    }

    fn check(&mut self, _now: Nanos) -> Result<Option<String>, SourceError> {
        match self.channel.has_signal() {
            Ok(signalled) => Ok(signalled.then(|| "the service manager reported memory pressure".to_owned())),
            Err(source) => Err(SourceError::ServiceManager {
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
    fn fifo_data_reports_pressure_once() {
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
        let mut source = ServiceManager::new(&path, None).unwrap();
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
    fn socket_receives_write_data_and_fails_when_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut source = ServiceManager::new(&path, Some("aGVsbG8=")).unwrap();
        let (mut manager, _) = listener.accept().unwrap();
        let mut greeting = [0; 5];
        manager.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"hello");
        manager.write_all(b"!").unwrap();
        assert!(source.check(Nanos::ZERO).unwrap().is_some());
        drop(manager);
        source.check(Nanos::ZERO).unwrap_err();
    }

    #[test]
    fn service_manager_rejects_bad_base64_and_missing_path() {
        let wrong = ServiceManager::new(Path::new("/dev/null"), Some("%")).unwrap_err();
        assert!(wrong.to_string().contains("not base64"));
        let missing = ServiceManager::new(Path::new("/nowhere/fifo"), None).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/fifo"));
    }
}
