//! The idle-page bitmap (`CONFIG_IDLE_PAGE_TRACKING`, Documentation/admin-guide/mm/idle_page_tracking.rst):
//! one bit a page frame. User space sets it; the kernel clears it when the page was accessed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::file::FileError;

/// The open bitmap. It is read and written in words of 64 frames, in native byte order.
#[derive(Debug)]
pub struct IdleBitmap {
    file: File,
    path: PathBuf,
}

/// Frames in a word.
pub const FRAMES: u64 = 64;

/// Whether the kernel of the machine at `root` (`/`) has the bitmap.
#[must_use]
pub fn exists(root: &Path) -> bool {
    root.join("sys/kernel/mm/page_idle/bitmap").exists()
}

impl IdleBitmap {
    /// Opens the bitmap of the machine at `root` (`/`).
    ///
    /// # Errors
    /// Fails if the kernel has none, or without root.
    pub fn open(root: &Path) -> Result<Self, FileError> {
        let path = root.join("sys/kernel/mm/page_idle/bitmap");
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = opened.map_err(|source| FileError::new(&path, source))?;
        Ok(Self { file, path })
    }

    /// Marks idle the frames of word `word` whose bits are set in `frames`, which clears the accessed bits of
    /// all page-table entries that map them. Other frames are unchanged. Frames that are on no LRU list, and
    /// frames of a large folio except its first, are skipped.
    ///
    /// # Errors
    /// Fails if there are no such frames.
    pub fn set_idle(&self, word: u64, frames: u64) -> Result<(), FileError> {
        self.file
            .write_all_at(&frames.to_ne_bytes(), word * 8)
            .map_err(|source| FileError::new(&self.path, source))
    }

    /// The frames of word `word` that are still idle.
    ///
    /// # Errors
    /// Fails if there are no such frames.
    pub fn read_idle(&self, word: u64) -> Result<u64, FileError> {
        let mut bytes = [0; 8];
        self.file
            .read_exact_at(&mut bytes, word * 8)
            .map_err(|source| FileError::new(&self.path, source))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn bitmap_words_are_read_and_written_by_index() {
        let root = tempfile::tempdir().unwrap();
        assert!(IdleBitmap::open(root.path()).unwrap_err().is_missing());
        let dir = root.path().join("sys/kernel/mm/page_idle");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("bitmap"), [0; 24]).unwrap();
        let bitmap = IdleBitmap::open(root.path()).unwrap();
        bitmap.set_idle(1, 0b101).unwrap();
        assert_eq!(
            (bitmap.read_idle(0).unwrap(), bitmap.read_idle(1).unwrap()),
            (0, 0b101)
        );
        assert!(bitmap.read_idle(3).is_err(), "the file has three words");
    }
}
