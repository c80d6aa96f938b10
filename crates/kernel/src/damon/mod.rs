//! In-kernel DAMON's sysfs tree (Documentation/admin-guide/mm/damon/usage.rst).
//!
//! This module only reads the tree. [`Admin`] writes it. This crate does not decide who may write, or when.

mod admin;
mod setup;

pub use admin::{Admin, Command, KdamondControl, SchemeStats, TriedRegion};
pub use setup::{Filter, FilterKind, Goal, Quota, Scheme, Setup, Watermarks};

use std::path::{Path, PathBuf};

use crate::file::{self, FileError};

/// The state of in-kernel DAMON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DamonFacts {
    /// The configured kdamonds, in order.
    pub kdamonds: Vec<Kdamond>,
}

/// A configured kdamond.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kdamond {
    /// True while it runs.
    pub running: bool,
    /// The pid of its thread, while it runs.
    pub pid: Option<u32>,
    /// The operations available to its first context (`vaddr`, `fvaddr`, `paddr`).
    pub avail_operations: Vec<String>,
}

/// Reads the state; `None` if this kernel has no such tree.
///
/// # Errors
/// Fails if the tree exists but cannot be read.
pub fn read(root: &Path) -> Result<Option<DamonFacts>, FileError> {
    let dir = root.join("sys/kernel/mm/damon/admin/kdamonds");
    let count = match file::number(&dir.join("nr_kdamonds")) {
        Ok(count) => count,
        Err(FileError::Missing(_)) => return Ok(None),
        Err(err) => return Err(err),
    };
    Ok(Some(DamonFacts {
        kdamonds: folders(&dir, count).map(|folder| kdamond(&folder)).collect(),
    }))
}

/// Whether any kdamond runs, of the sysfs tree or of a kernel module.
#[must_use]
pub fn is_running(root: &Path) -> bool {
    let tree = root.join("sys/kernel/mm/damon/admin/kdamonds");
    let count = file::number(&tree.join("nr_kdamonds")).unwrap_or(0);
    folders(&tree, count).any(|folder| has_value(&folder.join("state"), "on"))
        || enabled_module(root).is_some()
}

/// The first enabled kernel module that uses DAMON.
#[must_use]
pub fn enabled_module(root: &Path) -> Option<&'static str> {
    let is_enabled = |name: &str| has_value(&root.join(format!("sys/module/{name}/parameters/enabled")), "Y");
    ["damon_reclaim", "damon_lru_sort", "damon_stat"]
        .into_iter()
        .find(|name| is_enabled(name))
}

/// The folders of `count` kdamonds, as far as they exist: another program may remove some meanwhile.
fn folders(tree: &Path, count: u64) -> impl Iterator<Item = PathBuf> {
    let folders = (0..count).map(|index| tree.join(index.to_string()));
    folders.take_while(|folder| folder.is_dir())
}

fn has_value(path: &Path, value: &str) -> bool {
    file::text(path).is_ok_and(|text| text.trim() == value)
}

/// Whether this kernel's DAMON can monitor virtual address spaces; `None` if the kernel has no BTF, without
/// which this is not known before a context is set up.
#[must_use]
pub fn has_vaddr(root: &Path) -> Option<bool> {
    // BTF contains all kernel functions, so also those of vaddr.c.
    const FUNCTION_PREFIX: &[u8] = b"damon_va_";
    let btf = std::fs::read(root.join("sys/kernel/btf/vmlinux")).ok()?;
    let is_match = |window: &[u8]| window.first() == FUNCTION_PREFIX.first() && window == FUNCTION_PREFIX;
    Some(btf.windows(FUNCTION_PREFIX.len()).any(is_match))
}

fn kdamond(dir: &Path) -> Kdamond {
    let read = |name: &str| file::text(&dir.join(name)).unwrap_or_default();
    let operations = read("contexts/0/avail_operations");
    Kdamond {
        running: read("state").trim() == "on",
        pid: read("pid").trim().parse().ok(),
        avail_operations: operations.split_ascii_whitespace().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn running_kdamond_is_listed() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path()).unwrap(), None);
        let dir = root.path().join("sys/kernel/mm/damon/admin/kdamonds");
        std::fs::create_dir_all(dir.join("0/contexts/0")).unwrap();
        std::fs::write(dir.join("nr_kdamonds"), "1\n").unwrap();
        std::fs::write(dir.join("0/state"), "on\n").unwrap();
        std::fs::write(dir.join("0/pid"), "77\n").unwrap();
        std::fs::write(dir.join("0/contexts/0/avail_operations"), "vaddr\npaddr\n").unwrap();
        let facts = read(root.path()).unwrap().unwrap();
        let want = Kdamond {
            running: true,
            pid: Some(77),
            avail_operations: vec!["vaddr".into(), "paddr".into()],
        };
        assert_eq!(facts.kdamonds, [want]);
    }

    #[test]
    fn enabled_module_counts_as_running() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(!is_running(root.path()));
        put("sys/module/damon_stat/parameters/enabled", "N\n");
        put("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "2\n");
        put("sys/kernel/mm/damon/admin/kdamonds/0/state", "off\n");
        put("sys/kernel/mm/damon/admin/kdamonds/1/state", "off\n");
        assert!(!is_running(root.path()));
        put("sys/module/damon_stat/parameters/enabled", "Y\n");
        assert!(is_running(root.path()));
        put("sys/module/damon_stat/parameters/enabled", "N\n");
        put("sys/kernel/mm/damon/admin/kdamonds/1/state", "on\n");
        assert!(is_running(root.path()));
    }

    #[test]
    fn has_vaddr_is_read_from_btf() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(has_vaddr(root.path()), None);
        let btf = root.path().join("sys/kernel/btf");
        std::fs::create_dir_all(&btf).unwrap();
        std::fs::write(btf.join("vmlinux"), b"\0damon_pa_check\0ddamon_va\0").unwrap();
        assert_eq!(has_vaddr(root.path()), Some(false));
        std::fs::write(btf.join("vmlinux"), b"\0damon_pa_check\0damon_va_check\0").unwrap();
        assert_eq!(has_vaddr(root.path()), Some(true));
    }

    #[test]
    fn stopped_kdamond_has_no_pid() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/mm/damon/admin/kdamonds");
        std::fs::create_dir_all(dir.join("0")).unwrap();
        std::fs::write(dir.join("nr_kdamonds"), "1\n").unwrap();
        std::fs::write(dir.join("0/state"), "off\n").unwrap();
        std::fs::write(dir.join("0/pid"), "-1\n").unwrap();
        assert_eq!(read(root.path()).unwrap().unwrap().kdamonds, [Kdamond::default()]);
        std::fs::write(dir.join("nr_kdamonds"), format!("{}\n", u64::MAX)).unwrap();
        assert_eq!(read(root.path()).unwrap().unwrap().kdamonds, [Kdamond::default()]);
        assert!(!is_running(root.path()), "kdamonds without a folder do not run");
    }
}
