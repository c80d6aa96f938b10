//! What is served: a file, a block device or sparse memory under a name.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, MemfdFlags, fadvise, fallocate, memfd_create};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use thermo_units::Bytes;

use crate::protocol::handshake::Facts;
use crate::protocol::reply::Extent;
use crate::protocol::request::{LARGEST_PAYLOAD, Refusal};

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
    /// More is asked for than there is.
    #[error("export {name}: {} holds {there}, {asked} are to be served. Make it longer, or ask for less", .path.display())]
    TooShort {
        /// Of the export.
        name: String,
        /// The file.
        path: PathBuf,
        /// Its length.
        there: Bytes,
        /// What was asked for.
        asked: Bytes,
    },
    /// The kernel gives no memory for it.
    #[error("export {name}: no memory of {size} can be set up: {source}")]
    Memory {
        /// Of the export.
        name: String,
        /// How much.
        size: Bytes,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Storage under a name.
#[derive(Debug)]
pub struct Export {
    name: String,
    description: String,
    file: File,
    size: u64,
    read_only: bool,
    /// What is best done at once.
    block: u32,
}

impl Export {
    /// Opens a file or block device. Clients that ask for no name get the export with the empty one, else the first.
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
        Ok(Self::of(name, file, size, read_only))
    }

    /// Memory that takes room only where it was written, and is gone with the server.
    ///
    /// # Errors
    /// When the kernel does not make it.
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
            size,
            read_only,
            block: 4096,
        }
    }

    /// The same, with a text for people.
    #[must_use]
    pub fn described(mut self, description: &str) -> Self {
        description.clone_into(&mut self.description);
        self
    }

    /// Only the first `size` bytes of it.
    ///
    /// # Errors
    /// When it is not that long. `path` is for the message.
    pub fn first(mut self, size: Bytes, path: &Path) -> Result<Self, ExportError> {
        if size.0 > self.size {
            return Err(ExportError::TooShort {
                name: self.name,
                path: path.to_owned(),
                there: Bytes(self.size),
                asked: size,
            });
        }
        self.size = size.0;
        Ok(self)
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
    pub(crate) fn facts(&self) -> Facts {
        let changes = if self.read_only {
            READ_ONLY
        } else {
            SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO
        };
        Facts {
            name: self.name.clone(),
            description: self.description.clone(),
            size: self.size,
            flags: HAS_FLAGS | CAN_MULTI_CONN | SEND_CACHE | changes,
            preferred: self.block,
            largest: LARGEST_PAYLOAD,
        }
    }

    /// Fills `bytes`. A file that shrank meanwhile fails beyond its new end.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), Refusal> {
        self.file
            .read_exact_at(bytes, offset)
            .map_err(|error| refusal(&error))
    }

    /// Writes all of `bytes`; with `fua` they are on stable storage afterwards.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64, fua: bool) -> Result<(), Refusal> {
        if !fua {
            return self
                .file
                .write_all_at(bytes, offset)
                .map_err(|error| refusal(&error));
        }
        let mut done = 0;
        while done < bytes.len() {
            let rest = [IoSlice::new(&bytes[done..])];
            match pwritev2(&self.file, &rest, offset + done as u64, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(Refusal::Io),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                // A file system that does not know the flag.
                Err(Errno::OPNOTSUPP | Errno::INVAL) => {
                    self.write(&bytes[done..], offset + done as u64, false)?;
                    return self.flush();
                }
                Err(errno) => return Err(refusal(&errno.into())),
            }
        }
        Ok(())
    }

    /// Has the bytes read before they are asked for. Advice, so it cannot fail.
    pub(crate) fn cache(&self, offset: u64, length: u64) {
        let length = std::num::NonZeroU64::new(length);
        let _ = fadvise(&self.file, offset, length, Advice::WillNeed);
    }

    /// True when nothing is stored from `offset` on for `length` bytes, as far as the file system tells.
    pub(crate) fn is_hole(&self, offset: u64, length: u64) -> bool {
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => data >= offset + length,
            // No data to the end; anything else is no answer.
            Err(errno) => errno == Errno::NXIO,
        }
    }

    /// What is stored of `length` bytes from `offset` on, in at most `most` parts; storage that does not tell is
    /// all stored.
    pub(crate) fn extents(&self, offset: u64, length: u32, most: usize) -> Vec<Extent> {
        let end = offset + u64::from(length);
        let mut extents = Vec::new();
        let mut at = offset;
        while at < end && extents.len() < most {
            let (next, is_hole) = self.next_change(at, end);
            let length = u32::try_from(next - at).unwrap_or(u32::MAX);
            extents.push(Extent { length, is_hole });
            at = next;
        }
        extents
    }

    // Where what begins at `at` ends, and whether it is a hole.
    fn next_change(&self, at: u64, end: u64) -> (u64, bool) {
        let seek = |from| rustix::fs::seek(&self.file, from);
        match seek(rustix::fs::SeekFrom::Data(at)) {
            Ok(data) if data > at => (data.min(end), true),
            Ok(_) => {
                let hole = seek(rustix::fs::SeekFrom::Hole(at)).unwrap_or(end);
                (hole.clamp(at + 1, end), false)
            }
            Err(Errno::NXIO) => (end, true),
            Err(_) => (end, false),
        }
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

    /// Makes the bytes zero; without a hole if `no_hole`, and not by writing them if `fast`.
    pub(crate) fn zero(&self, offset: u64, length: u64, no_hole: bool, fast: bool) -> Result<(), Refusal> {
        let quick = if no_hole {
            self.allocate(
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                offset,
                length,
            )
        } else {
            self.punch(offset, length)
        };
        match quick {
            Ok(()) => return Ok(()),
            Err(Errno::NOSPC) => return Err(Refusal::NoSpace),
            Err(_) if fast => return Err(Refusal::NotSupported),
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

    fn punch(&self, offset: u64, length: u64) -> rustix::io::Result<()> {
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
