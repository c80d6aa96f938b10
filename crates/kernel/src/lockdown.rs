//! Kernel lockdown: what even root may not do (kernel_lockdown(7)).

use std::path::Path;

use crate::file;

/// How far the kernel is locked down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Lockdown {
    /// Not at all, or this kernel does not know it.
    #[default]
    None,
    /// The kernel cannot be changed from user space.
    Integrity,
    /// Nor can its memory be read: no `bpf_probe_read_kernel`.
    Confidentiality,
}

/// Reads it.
#[must_use]
pub fn read(root: &Path) -> Lockdown {
    let text = file::text(&root.join("sys/kernel/security/lockdown")).unwrap_or_default();
    if text.contains("[confidentiality]") {
        Lockdown::Confidentiality
    } else if text.contains("[integrity]") {
        Lockdown::Integrity
    } else {
        Lockdown::None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn the_chosen_word_is_in_brackets() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path()), Lockdown::None);
        let dir = root.path().join("sys/kernel/security");
        std::fs::create_dir_all(&dir).unwrap();
        for (text, want) in [
            ("[none] integrity confidentiality\n", Lockdown::None),
            ("none [integrity] confidentiality\n", Lockdown::Integrity),
            ("none integrity [confidentiality]\n", Lockdown::Confidentiality),
        ] {
            std::fs::write(dir.join("lockdown"), text).unwrap();
            assert_eq!(read(root.path()), want);
        }
    }
}
