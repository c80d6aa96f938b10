//! In-kernel DAMON's sysfs tree, read only: whoever runs a kdamond keeps it (Documentation/admin-guide/mm/damon/usage.rst).

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
