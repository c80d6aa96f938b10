//! Transparent huge pages: when the kernel uses them by itself (Documentation/admin-guide/mm/transhuge.rst).

use std::fmt;
use std::path::{Path, PathBuf};

use crate::file::{self, FileError};

/// The mode of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThpMode {
    /// Everywhere.
    Always,
    /// In mappings that asked for it.
    Madvise,
    /// Nowhere.
    Never,
}

impl ThpMode {
    /// The word in the kernel's file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Madvise => "madvise",
            Self::Never => "never",
        }
    }
}

impl fmt::Display for ThpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn path(root: &Path) -> PathBuf {
    root.join("sys/kernel/mm/transparent_hugepage/enabled")
}

/// The mode now; `None` when this kernel has no huge pages of this kind.
///
/// # Errors
/// When the file is there and cannot be understood.
pub fn read(root: &Path) -> Result<Option<ThpMode>, FileError> {
    let path = path(root);
    let text = match file::text(&path) {
        Err(FileError::Missing(_)) => return Ok(None),
        other => other?,
    };
    let modes = [ThpMode::Always, ThpMode::Madvise, ThpMode::Never];
    let chosen = modes
        .into_iter()
        .find(|mode| text.contains(&format!("[{}]", mode.name())));
    chosen
        .map(Some)
        .ok_or_else(|| FileError::malformed(&path, text.trim(), "a choice like always [madvise] never"))
}

/// A mode we set; the old one comes back by [`ThpGuard::restore`], or when it is dropped.
#[derive(Debug)]
pub struct ThpGuard {
    path: PathBuf,
    before: ThpMode,
    restored: bool,
}

impl ThpGuard {
    /// Sets `mode` for the whole machine.
    ///
    /// # Errors
    /// When the kernel has no huge pages of this kind, or we may not.
    pub fn set(root: &Path, mode: ThpMode) -> Result<Self, FileError> {
        let path = path(root);
        let before = read(root)?.ok_or_else(|| FileError::Missing(path.clone()))?;
        file::write(&path, mode.name())?;
        Ok(Self {
            path,
            before,
            restored: false,
        })
    }

    /// Sets the mode there was before.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn restore(mut self) -> Result<(), FileError> {
        self.restored = true;
        file::write(&self.path, self.before.name())
    }
}

impl Drop for ThpGuard {
    fn drop(&mut self) {
        if self.restored {
            return;
        }
        if let Err(err) = file::write(&self.path, self.before.name()) {
            eprintln!(
                "the huge page mode was {0} and could not be set back: {err}. `echo {0} > {1}` does it",
                self.before,
                self.path.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn what_was_set_is_set_back() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path()).unwrap(), None);
        let path = path(root.path());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "always [madvise] never\n").unwrap();
        assert_eq!(read(root.path()).unwrap(), Some(ThpMode::Madvise));
        let guard = ThpGuard::set(root.path(), ThpMode::Always).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("always"));
        drop(guard);
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("madvise"));
    }
}
