//! BTF: the kernel's own description of its types, which BPF programs are fitted to.

use std::path::Path;

/// True when the kernel describes its types (built with `CONFIG_DEBUG_INFO_BTF`).
#[must_use]
pub fn exists(root: &Path) -> bool {
    root.join("sys/kernel/btf/vmlinux").exists()
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_empty_machine_has_none() {
        assert!(!super::exists(std::path::Path::new("/nonexistent")));
    }
}
