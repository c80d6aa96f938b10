//! The idle-page bitmap (`CONFIG_IDLE_PAGE_TRACKING`, Documentation/admin-guide/mm/idle_page_tracking.rst): one bit a
//! page frame, set by who wants to know, cleared by the kernel when it finds the page touched.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::file::FileError;

/// The open bitmap. It is read and written in words of 64 frames, in the machine's byte order.
#[derive(Debug)]
pub struct IdleBitmap {
    file: File,
    path: PathBuf,
}

/// Frames in a word.
pub const FRAMES: u64 = 64;

/// Whether the kernel of the machine at `root` (`/`) has it.
#[must_use]
pub fn exists(root: &Path) -> bool {
    root.join("sys/kernel/mm/page_idle/bitmap").exists()
}

impl IdleBitmap {
    /// Opens that of the machine at `root` (`/`).
    ///
    /// # Errors
    /// The kernel has none, or we are not root.
    pub fn open(root: &Path) -> Result<Self, FileError> {
        let path = root.join("sys/kernel/mm/page_idle/bitmap");
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = opened.map_err(|source| FileError::new(&path, source))?;
        Ok(Self { file, path })
    }

    /// Marks those frames of word `word` idle whose bits are set in `frames`, taking the accessed marks off whatever
    /// maps them. The others stay as they are. Frames on no LRU list, and those of larger folios but the first, are
    /// passed over.
    ///
    /// # Errors
    /// When there are no such frames.
    pub fn mark(&self, word: u64, frames: u64) -> Result<(), FileError> {
        self.file
            .write_all_at(&frames.to_ne_bytes(), word * 8)
            .map_err(|source| FileError::new(&self.path, source))
    }

    /// Which frames of word `word` are idle still.
    ///
    /// # Errors
    /// When there are no such frames.
    pub fn idle(&self, word: u64) -> Result<u64, FileError> {
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
    fn a_word_is_written_and_read_at_its_place() {
        let root = tempfile::tempdir().unwrap();
        assert!(IdleBitmap::open(root.path()).unwrap_err().is_missing());
        let dir = root.path().join("sys/kernel/mm/page_idle");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("bitmap"), [0; 24]).unwrap();
        let bitmap = IdleBitmap::open(root.path()).unwrap();
        bitmap.mark(1, 0b101).unwrap();
        assert_eq!((bitmap.idle(0).unwrap(), bitmap.idle(1).unwrap()), (0, 0b101));
        assert!(bitmap.idle(3).is_err(), "there are three words");
    }
}
