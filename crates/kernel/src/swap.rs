//! Swap spaces: list (`/proc/swaps`), enable and disable (swapon(2)).

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use thermo_units::Bytes;

use crate::file::{self, FileError};

/// One swap space in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// The device or file.
    pub path: PathBuf,
    /// Its size.
    pub size: Bytes,
    /// The used part.
    pub used: Bytes,
}

impl Swap {
    /// The part that is not used.
    #[must_use]
    pub const fn free(&self) -> Bytes {
        self.size.saturating_sub(self.used)
    }

    /// Whether it is a zram device.
    #[must_use]
    pub fn is_zram(&self) -> bool {
        self.path.to_string_lossy().starts_with("/dev/zram")
    }
}

/// All swap spaces in use; also empty on a kernel without swap.
///
/// # Errors
/// Fails if the list exists but cannot be read.
pub fn read(root: &Path) -> Result<Vec<Swap>, FileError> {
    let path = root.join("proc/swaps");
    let text = match file::text(&path) {
        Err(FileError::Missing(_)) => return Ok(Vec::new()),
        other => other?,
    };
    let swap = |line: &str| parse(line).ok_or_else(|| FileError::malformed(&path, line, "a swap space"));
    text.lines().skip(1).map(swap).collect()
}

fn parse(line: &str) -> Option<Swap> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [path, _kind, size, used, _priority] = fields.as_slice() else {
        return None;
    };
    Some(Swap {
        path: path.replace("\\040", " ").into(),
        size: Bytes::kib(size.parse().ok()?),
        used: Bytes::kib(used.parse().ok()?),
    })
}

/// Writes a swap header (as mkswap(8)) to `path`, a file or device of at least ten pages. Its contents are
/// lost.
///
/// # Errors
/// Fails if it is too small or cannot be written.
#[expect(clippy::indexing_slicing, reason = "a page has at least 4096 bytes")]
pub fn format(path: &Path, size: Bytes) -> Result<(), FileError> {
    let page = rustix::param::page_size();
    let pages = u32::try_from(size.0 / page as u64).unwrap_or(u32::MAX);
    if pages < 10 {
        let why = format!(
            "{} bytes are too few for swap: the minimum is {}",
            size.0,
            10 * page
        );
        return Err(FileError::new(
            path,
            io::Error::new(io::ErrorKind::InvalidInput, why),
        ));
    }
    // union swap_header of include/linux/swap.h: version at 1024, then the last page, and the signature at
    // the end of the page.
    let mut header = vec![0_u8; page];
    header[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&(pages - 1).to_ne_bytes());
    header[page - 10..].copy_from_slice(b"SWAPSPACE2");
    let write = || {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&header)?;
        file.sync_all()
    };
    write().map_err(|source| FileError::new(path, source))
}

/// Enables swap on `path`, with a priority of 0 to 32767: higher priorities are used first.
///
/// # Errors
/// Fails if it is no swap space, or without `CAP_SYS_ADMIN`.
pub fn on(path: &Path, priority: u16) -> Result<(), FileError> {
    const SWAP_FLAG_PREFER: i32 = 0x8000;
    let name = c_path(path)?;
    let flags = SWAP_FLAG_PREFER | i32::from(priority & 0x7fff);
    // SAFETY: the name ends in a zero byte and lives through the call.
    let done = unsafe { libc::swapon(name.as_ptr(), flags) };
    check(path, done)
}

/// Disables swap on `path`. The kernel first reads its contents back to memory, which can take long.
///
/// # Errors
/// Fails if it is not in use, if memory does not suffice, or without the right to do it.
pub fn off(path: &Path) -> Result<(), FileError> {
    let name = c_path(path)?;
    // SAFETY: the name ends in a zero byte and lives through the call.
    let done = unsafe { libc::swapoff(name.as_ptr()) };
    check(path, done)
}

fn c_path(path: &Path) -> Result<CString, FileError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|err| FileError::new(path, err.into()))
}

fn check(path: &Path, done: i32) -> Result<(), FileError> {
    if done == 0 {
        Ok(())
    } else {
        Err(FileError::new(path, io::Error::last_os_error()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn swaps_are_listed() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path()).unwrap(), []);
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let text = "Filename\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0   partition\t1024\t\t8\t\t100\n/swap\\040file  file\t10\t0\t-2\n";
        std::fs::write(root.path().join("proc/swaps"), text).unwrap();
        let swaps = read(root.path()).unwrap();
        let want = Swap {
            path: "/dev/zram0".into(),
            size: Bytes::mib(1),
            used: Bytes::kib(8),
        };
        assert_eq!(swaps[0], want);
        assert_eq!(swaps[1].path.to_str(), Some("/swap file"));
    }

    #[test]
    fn format_writes_signature() {
        let file = tempfile::NamedTempFile::new().unwrap();
        format(file.path(), Bytes::mib(1)).unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(bytes.ends_with(b"SWAPSPACE2"));
        assert!(
            format(file.path(), Bytes::kib(4))
                .unwrap_err()
                .to_string()
                .contains("too few")
        );
    }
}
