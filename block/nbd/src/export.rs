//! An export: a named file, block device or sparse memory.

mod extents;
mod group_sync;
mod image_lock;
pub(crate) mod spec;

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, MemfdFlags, OFlags, fadvise, fallocate, memfd_create};
use rustix::io::Errno;
use thermo_kernel::ofd_lock;
use thermo_units::Bytes;

use crate::protocol::handshake::ExportInfo;
use crate::protocol::request::{MAX_PAYLOAD, NbdError};
use group_sync::GroupSync;

const HAS_FLAGS: u16 = 1;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const SEND_TRIM: u16 = 1 << 5;
const SEND_WRITE_ZEROES: u16 = 1 << 6;
const CAN_MULTI_CONN: u16 = 1 << 8;
const SEND_CACHE: u16 = 1 << 10;
const SEND_FAST_ZERO: u16 = 1 << 11;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// An export cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The file cannot be opened.
    #[error("export {name}: {} cannot be opened: {source}", .path.display())]
    Open {
        /// Name of the export.
        name: String,
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The path is neither a file nor a block device.
    #[error("export {name}: {} is neither a file nor a block device", .path.display())]
    NotStorage {
        /// Name of the export.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// Another program uses the file, or another export.
    #[error("export {name}: {} is in use, by another program or export that writes to it or wants nobody else to. End that use, serve the file read-only at both, or use --force, which risks the data", .path.display())]
    InUse {
        /// Name of the export.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be locked.
    #[error("export {name}: {} cannot be locked: {source}. If no other program uses the file, use --force", .path.display())]
    Lock {
        /// Name of the export.
        name: String,
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The file is shorter than the requested size.
    #[error("export {name}: {} has {actual}, but {requested} were requested. Extend the file, or request less", .path.display())]
    TooShort {
        /// Name of the export.
        name: String,
        /// The file.
        path: PathBuf,
        /// Length of the file.
        actual: Bytes,
        /// The requested size.
        requested: Bytes,
    },
    /// The memory cannot be created.
    #[error("export {name}: cannot create memory of {size}: {source}")]
    Memory {
        /// Name of the export.
        name: String,
        /// The requested size.
        size: Bytes,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// A named block of storage.
#[derive(Debug)]
pub struct Export {
    name: String,
    description: String,
    file: File,
    sync: GroupSync,
    size: u64,
    read_only: bool,
    /// Preferred block size, in bytes.
    block: u32,
}

impl Export {
    /// Opens a file or block device. Clients that request no name get the export with the empty name, or else
    /// the first. While it is open, no other program may write to it: files are locked as QEMU does, and
    /// writable block devices also against mounts (`O_EXCL`).
    ///
    /// # Errors
    /// The path cannot be opened or locked, or is neither a file nor a block device.
    pub fn open(name: &str, path: &Path, read_only: bool) -> Result<Self, ExportError> {
        let in_use = || ExportError::InUse {
            name: name.to_owned(),
            path: path.to_owned(),
        };
        // For a file, this flag has no effect.
        let exclusive = if read_only { OFlags::empty() } else { OFlags::EXCL };
        let export = match Self::open_with(name, path, read_only, exclusive) {
            Err(ExportError::Open { source, .. }) if source.kind() == io::ErrorKind::ResourceBusy => {
                return Err(in_use());
            }
            opened => opened?,
        };
        match image_lock::lock(&export.file, read_only) {
            Ok(true) => Ok(export),
            Ok(false) => Err(in_use()),
            Err(source) => Err(ExportError::Lock {
                name: name.to_owned(),
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Like [`Self::open`], but neither takes nor respects a lock. If another program writes to the file, the
    /// data of both may be lost.
    ///
    /// # Errors
    /// The path cannot be opened, or is neither a file nor a block device.
    pub fn open_without_lock(name: &str, path: &Path, read_only: bool) -> Result<Self, ExportError> {
        Self::open_with(name, path, read_only, OFlags::empty())
    }

    fn open_with(name: &str, path: &Path, read_only: bool, flags: OFlags) -> Result<Self, ExportError> {
        let open_error = |source| ExportError::Open {
            name: name.to_owned(),
            path: path.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .custom_flags(flags.bits() as i32)
            .open(path)
            .map_err(open_error)?;
        let kind = file.metadata().map_err(open_error)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let (name, path) = (name.to_owned(), path.to_owned());
            return Err(ExportError::NotStorage { name, path });
        }
        // The metadata of a block device have no length, so seek to its end.
        let size = file.seek(SeekFrom::End(0)).map_err(open_error)?;
        Ok(Self::of(name, file, size, read_only))
    }

    /// Creates sparse memory. It occupies memory only where written, and is lost when the server ends.
    ///
    /// # Errors
    /// The kernel cannot create the memory.
    pub fn memory(name: &str, size: Bytes, read_only: bool) -> Result<Self, ExportError> {
        let make = || {
            let file = File::from(memfd_create("thermo-nbd", MemfdFlags::CLOEXEC)?);
            file.set_len(size.0)?;
            Ok(file)
        };
        match make() {
            Ok(file) => Ok(Self::of(name, file, size.0, read_only)),
            Err(source) => Err(ExportError::Memory {
                name: name.to_owned(),
                size,
                source,
            }),
        }
    }

    fn of(name: &str, file: File, size: u64, read_only: bool) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            file,
            sync: GroupSync::default(),
            size,
            read_only,
            block: 4096,
        }
    }

    /// Sets the description, a text for people.
    #[must_use]
    pub fn with_description(mut self, description: &str) -> Self {
        description.clone_into(&mut self.description);
        self
    }

    /// Limits the export to the first `size` bytes. `path` is only for the error message.
    ///
    /// # Errors
    /// The export is shorter than `size`.
    pub fn limited_to(mut self, size: Bytes, path: &Path) -> Result<Self, ExportError> {
        if size.0 > self.size {
            return Err(ExportError::TooShort {
                name: self.name.clone(),
                path: path.to_owned(),
                actual: Bytes(self.size),
                requested: size,
            });
        }
        self.size = size.0;
        Ok(self)
    }

    /// The name of the export.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Length in bytes when it was opened.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Whether writes are rejected.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The export as described to clients. All connections share one open file, so a flush on any connection
    /// covers all, and so does its error ([`GroupSync`]).
    pub(crate) fn info(&self) -> ExportInfo {
        let changes = if self.read_only {
            READ_ONLY
        } else {
            SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO
        };
        ExportInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            size: self.size,
            flags: HAS_FLAGS | CAN_MULTI_CONN | SEND_CACHE | changes,
            preferred_block: self.block,
            max_payload: MAX_PAYLOAD,
        }
    }

    /// Fills `bytes` from `offset`. Fails beyond the end of a file that shrank.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), NbdError> {
        self.file
            .read_exact_at(bytes, offset)
            .map_err(|error| nbd_error(&error))
    }

    /// Writes all of `bytes`. With `fua`, they are on stable storage on return.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64, fua: bool) -> Result<(), NbdError> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|error| nbd_error(&error))?;
        // RWF_DSYNC would sync less, but could take the error of a flush on another connection.
        if fua { self.flush() } else { Ok(()) }
    }

    /// Starts readahead. Advisory, so it cannot fail.
    pub(crate) fn cache(&self, offset: u64, length: u64) {
        let length = std::num::NonZeroU64::new(length);
        let _ = fadvise(&self.file, offset, length, Advice::WillNeed);
    }

    /// Puts all finished writes on stable storage. After an error, which says that writes are lost, every
    /// flush fails until the export is opened again.
    pub(crate) fn flush(&self) -> Result<(), NbdError> {
        self.sync
            .run(|| self.file.sync_data().map_err(|error| nbd_error(&error)))
    }

    /// Whether storage lost acknowledged writes.
    #[must_use]
    pub fn has_lost_writes(&self) -> bool {
        self.sync.has_failed()
    }

    /// Discards a range. Advisory, so a file system without hole punching is no error.
    pub(crate) fn trim(&self, offset: u64, length: u64) -> Result<(), NbdError> {
        match self.punch_hole(offset, length) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(nbd_error(&errno.into())),
        }
    }

    /// Zeroes a range. With `no_hole`, allocates it; with `fast`, fails instead of writing zeros.
    pub(crate) fn zero(&self, offset: u64, length: u64, no_hole: bool, fast: bool) -> Result<(), NbdError> {
        let outcome = if no_hole {
            self.allocate(
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                offset,
                length,
            )
        } else {
            self.punch_hole(offset, length)
        };
        match outcome {
            Ok(()) => return Ok(()),
            Err(Errno::NOSPC) => return Err(NbdError::NoSpace),
            Err(_) if fast => return Err(NbdError::NotSupported),
            Err(_) => {}
        }
        let mut at = offset;
        while at < offset + length {
            let left = usize::try_from(offset + length - at).unwrap_or(usize::MAX);
            let part = &ZEROS[..left.min(ZEROS.len())];
            self.write(part, at, false)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn punch_hole(&self, offset: u64, length: u64) -> rustix::io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.allocate(flags, offset, length)
    }

    fn allocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> rustix::io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        fallocate(&self.file, flags, offset, length)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // A child that was forked a moment ago still has the file, and with it the locks. Memory and files
        // opened without a lock have none, and file systems without locks cannot fail to end one.
        let _ = ofd_lock::unlock(&self.file);
    }
}

fn nbd_error(error: &io::Error) -> NbdError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            NbdError::NoSpace
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => NbdError::Permission,
        io::ErrorKind::OutOfMemory => NbdError::NoMemory,
        _ => NbdError::Io,
    }
}
