//! Kernel lockdown: restrictions that apply even to root (kernel_lockdown(7)).

use std::path::Path;

use crate::file;

/// True if not even root may read kernel memory, so `bpf_probe_read_kernel` fails.
#[must_use]
pub fn is_confidential(root: &Path) -> bool {
    let text = file::text(&root.join("sys/kernel/security/lockdown")).unwrap_or_default();
    text.contains("[confidentiality]")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn confidential_mode_is_the_bracketed_word() {
        let root = tempfile::tempdir().unwrap();
        assert!(!is_confidential(root.path()));
        let dir = root.path().join("sys/kernel/security");
        std::fs::create_dir_all(&dir).unwrap();
        for (text, want) in [
            ("[none] integrity confidentiality\n", false),
            ("none [integrity] confidentiality\n", false),
            ("none integrity [confidentiality]\n", true),
        ] {
            std::fs::write(dir.join("lockdown"), text).unwrap();
            assert_eq!(is_confidential(root.path()), want);
        }
    }
}
