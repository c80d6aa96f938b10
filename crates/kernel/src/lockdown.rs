//! Kernel lockdown: what even root may not do (kernel_lockdown(7)).

use std::path::Path;

use crate::file;

/// True when not even root may read the kernel's memory: no `bpf_probe_read_kernel`.
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
    fn the_chosen_word_is_in_brackets() {
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
