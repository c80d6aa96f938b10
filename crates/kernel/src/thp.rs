//! The mode of transparent huge pages (Documentation/admin-guide/mm/transhuge.rst).

use std::fmt;
use std::path::{Path, PathBuf};

use crate::file::{self, FileError};

/// The mode of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThpMode {
    /// Everywhere.
    Always,
    /// In mappings with `MADV_HUGEPAGE`.
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

/// The current mode; `None` if this kernel has no transparent huge pages.
///
/// # Errors
/// Fails if the file exists but cannot be parsed.
pub fn read(root: &Path) -> Result<Option<ThpMode>, FileError> {
    let path = path(root);
    let text = match file::text(&path) {
        Err(FileError::Missing(_)) => return Ok(None),
        other => other?,
    };
    let modes = [ThpMode::Always, ThpMode::Madvise, ThpMode::Never];
    let selected = modes
        .into_iter()
        .find(|mode| text.contains(&format!("[{}]", mode.name())));
    selected
        .map(Some)
        .ok_or_else(|| FileError::malformed(&path, text.trim(), "a list like always [madvise] never"))
}

/// A mode that we set. [`ThpGuard::restore`] or dropping the guard sets the previous mode again.
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
    /// Fails if the kernel has no transparent huge pages, or without the right to write the file.
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

    /// Sets the previous mode again.
    ///
    /// # Errors
    /// Fails if the kernel refuses the write.
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
            crate::message!(
                "cannot restore the huge page mode {0}: {err}. Run `echo {0} > {1}`",
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
    fn guard_restores_previous_mode() {
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
