//! BTF: the kernel's own description of its types, which BPF programs are fitted to.

use std::path::{Path, PathBuf};

/// Where the kernel's types are described.
#[must_use]
pub fn path(root: &Path) -> PathBuf {
    root.join("sys/kernel/btf/vmlinux")
}

/// True when the kernel describes its types (built with `CONFIG_DEBUG_INFO_BTF`).
#[must_use]
pub fn exists(root: &Path) -> bool {
    path(root).exists()
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_empty_machine_has_none() {
        assert!(!super::exists(std::path::Path::new("/nonexistent")));
    }
}
