//! BTF: the kernel's description of its own types, against which BPF programs are relocated.

use std::path::Path;

/// True if the kernel has BTF (built with `CONFIG_DEBUG_INFO_BTF`).
#[must_use]
pub fn exists(root: &Path) -> bool {
    root.join("sys/kernel/btf/vmlinux").exists()
}

#[cfg(test)]
mod tests {
    #[test]
    fn btf_is_absent_below_empty_root() {
        assert!(!super::exists(std::path::Path::new("/nonexistent")));
    }
}
