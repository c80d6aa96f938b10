//! In-kernel DAMON's sysfs tree (Documentation/admin-guide/mm/damon/usage.rst).
//!
//! Here it is only read. [`Admin`] writes: who may, and when, is not decided in this crate.

mod admin;
mod setup;

pub use admin::{Admin, Command, Control, SchemeStats, TriedRegion};
pub use setup::{Filter, FilterKind, Goal, Quota, Scheme, Setup, Watermarks};

use std::path::Path;

use crate::file::{self, FileError};

/// What the kernel's DAMON is and does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DamonFacts {
    /// Each kdamond that is set up, in its order.
    pub kdamonds: Vec<Kdamond>,
}

/// One kdamond that is set up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kdamond {
    /// True while it runs.
    pub running: bool,
    /// Its thread, while it runs.
    pub pid: Option<u32>,
    /// The operations its first context could use (`vaddr`, `fvaddr`, `paddr`).
    pub avail_operations: Vec<String>,
}

/// Reads it; `None` when this kernel has no such tree.
///
/// # Errors
/// When the tree is there and cannot be read.
pub fn read(root: &Path) -> Result<Option<DamonFacts>, FileError> {
    let dir = root.join("sys/kernel/mm/damon/admin/kdamonds");
    let count = match file::number(&dir.join("nr_kdamonds")) {
        Ok(count) => count,
        Err(FileError::Missing(_)) => return Ok(None),
        Err(err) => return Err(err),
    };
    Ok(Some(DamonFacts {
        kdamonds: (0..count)
            .map(|index| kdamond(&dir.join(index.to_string())))
            .collect(),
    }))
}

/// Whether a kdamond runs, be it one of the tree or of one of the kernel's own modules.
#[must_use]
pub fn runs(root: &Path) -> bool {
    let tree = root.join("sys/kernel/mm/damon/admin/kdamonds");
    let count = file::number(&tree.join("nr_kdamonds")).unwrap_or(0);
    (0..count).any(|index| says(&tree.join(format!("{index}/state")), "on")) || enabled_module(root).is_some()
}

/// The first enabled of the kernel's own modules that use DAMON, each for itself alone.
#[must_use]
pub fn enabled_module(root: &Path) -> Option<&'static str> {
    let is_enabled = |name: &str| says(&root.join(format!("sys/module/{name}/parameters/enabled")), "Y");
    ["damon_reclaim", "damon_lru_sort", "damon_stat"]
        .into_iter()
        .find(|name| is_enabled(name))
}

fn says(path: &Path, word: &str) -> bool {
    file::text(path).is_ok_and(|text| text.trim() == word)
}

/// Whether this kernel's DAMON can watch address spaces of processes; `None` when that cannot be told without setting
/// a context up, because the kernel does not describe its types.
#[must_use]
pub fn has_vaddr(root: &Path) -> Option<bool> {
    // The functions of vaddr.c are in the description of types, as all of the kernel's are.
    const ONE_OF_ITS_FUNCTIONS: &[u8] = b"damon_va_";
    let types = std::fs::read(root.join("sys/kernel/btf/vmlinux")).ok()?;
    let first = ONE_OF_ITS_FUNCTIONS[0];
    let starts_here = |at: &[u8]| at[0] == first && at == ONE_OF_ITS_FUNCTIONS;
    Some(types.windows(ONE_OF_ITS_FUNCTIONS.len()).any(starts_here))
}

fn kdamond(dir: &Path) -> Kdamond {
    let word = |name: &str| file::text(&dir.join(name)).unwrap_or_default();
    let operations = word("contexts/0/avail_operations");
    Kdamond {
        running: word("state").trim() == "on",
        pid: word("pid").trim().parse().ok(),
        avail_operations: operations.split_ascii_whitespace().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn a_running_kdamond_is_seen() {
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
    fn kdamonds_of_modules_run_as_well() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(!runs(root.path()));
        put("sys/module/damon_stat/parameters/enabled", "N\n");
        put("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "2\n");
        put("sys/kernel/mm/damon/admin/kdamonds/0/state", "off\n");
        put("sys/kernel/mm/damon/admin/kdamonds/1/state", "off\n");
        assert!(!runs(root.path()));
        put("sys/module/damon_stat/parameters/enabled", "Y\n");
        assert!(runs(root.path()));
        put("sys/module/damon_stat/parameters/enabled", "N\n");
        put("sys/kernel/mm/damon/admin/kdamonds/1/state", "on\n");
        assert!(runs(root.path()));
    }

    #[test]
    fn what_it_can_watch_is_told_by_the_kernel_s_types() {
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
    fn one_that_is_off_has_no_thread() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/mm/damon/admin/kdamonds");
        std::fs::create_dir_all(dir.join("0")).unwrap();
        std::fs::write(dir.join("nr_kdamonds"), "1\n").unwrap();
        std::fs::write(dir.join("0/state"), "off\n").unwrap();
        std::fs::write(dir.join("0/pid"), "-1\n").unwrap();
        assert_eq!(read(root.path()).unwrap().unwrap().kdamonds, [Kdamond::default()]);
    }
}
