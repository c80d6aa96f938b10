//! What is served: a file or a block device under a name.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::handshake::Facts;
use crate::request::Refusal;

const HAS_FLAGS: u16 = 1;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const SEND_TRIM: u16 = 1 << 5;
const SEND_WRITE_ZEROES: u16 = 1 << 6;
const CAN_MULTI_CONN: u16 = 1 << 8;

/// What clients of other servers are used to; longer requests are done as well, in pieces.
const LARGEST_REQUEST: u32 = 32 << 20;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Why a file cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// It cannot be opened.
    #[error("export {name}: {} cannot be opened: {source}", .path.display())]
    Open {
        /// Of the export.
        name: String,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is no storage.
    #[error("export {name}: {} is neither a file nor a block device", .path.display())]
    NoStorage {
        /// Of the export.
        name: String,
        /// The file.
        path: PathBuf,
    },
}

/// A file or block device under a name.
#[derive(Debug)]
pub struct Export {
    name: String,
    file: File,
    size: u64,
    read_only: bool,
}

impl Export {
    /// Opens it. Clients that ask for no name get the export with the empty one, else the first.
    ///
    /// # Errors
    /// When it cannot be opened, or is no storage.
    pub fn open(name: &str, path: &Path, read_only: bool) -> Result<Self, ExportError> {
        let wrong = |source| ExportError::Open {
            name: name.to_owned(),
            path: path.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .open(path)
            .map_err(wrong)?;
        let kind = file.metadata().map_err(wrong)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let (name, path) = (name.to_owned(), path.to_owned());
            return Err(ExportError::NoStorage { name, path });
        }
        // Its metadata tell no length of a block device; its end does.
        let size = file.seek(SeekFrom::End(0)).map_err(wrong)?;
        let name = name.to_owned();
        Ok(Self {
            name,
            file,
            size,
            read_only,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its length in bytes when it was opened.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// True when clients may not change it.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What clients are told. All connections share one open file, so a flush on any of them covers all.
    pub(crate) const fn facts(&self) -> Facts {
        let changes = if self.read_only {
            READ_ONLY
        } else {
            SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES
        };
        Facts {
            size: self.size,
            flags: HAS_FLAGS | CAN_MULTI_CONN | changes,
            largest: LARGEST_REQUEST,
        }
    }

    /// Fills `bytes`. A file that shrank meanwhile fails beyond its new end.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), Refusal> {
        self.file
            .read_exact_at(bytes, offset)
            .map_err(|error| refusal(&error))
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Refusal> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| refusal(&error))
    }

    pub(crate) fn flush(&self) -> Result<(), Refusal> {
        self.file.sync_data().map_err(|error| refusal(&error))
    }

    /// Gives the storage back where it can; it is advice, so a file system without holes is no failure.
    pub(crate) fn trim(&self, offset: u64, length: u64) -> Result<(), Refusal> {
        match self.punch(offset, length) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(refusal(&errno.into())),
        }
    }

    pub(crate) fn zero(&self, offset: u64, length: u64, no_hole: bool) -> Result<(), Refusal> {
        if !no_hole && self.punch(offset, length).is_ok() {
            return Ok(());
        }
        let mut at = offset;
        while at < offset + length {
            let left = usize::try_from(offset + length - at).unwrap_or(usize::MAX);
            let part = &ZEROS[..left.min(ZEROS.len())];
            self.write(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn punch(&self, offset: u64, length: u64) -> rustix::io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            length,
        )
    }
}

fn refusal(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Refusal::NoSpace
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Refusal::Permission,
        io::ErrorKind::OutOfMemory => Refusal::NoMemory,
        _ => Refusal::Io,
    }
}
