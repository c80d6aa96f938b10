//! MGLRU, the kernel's lists by generation (Documentation/admin-guide/mm/multigen_lru.rst).

use std::collections::BTreeMap;
use std::path::Path;

use crate::file::{self, FileError};

/// Parts of MGLRU that are switched on, the bits of `/sys/kernel/mm/lru_gen/enabled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Enabled(u32);

impl Enabled {
    /// What is on; nothing where the kernel has no MGLRU.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = file::text(&root.join("sys/kernel/mm/lru_gen/enabled")).unwrap_or_default();
        let hex = text.trim().strip_prefix("0x");
        let bits = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok());
        Self(bits.unwrap_or(0))
    }

    /// The main switch: pages are kept by generation.
    #[must_use]
    pub const fn is_on(self) -> bool {
        self.0 & 1 == 1
    }

    /// Whether ageing walks page tables and takes accessed marks off there.
    #[must_use]
    pub const fn walks_page_tables(self) -> bool {
        self.0 & 3 == 3
    }
}

/// How many generations there have been so far of each control group with memory, on all nodes together, by the group's
/// path below the mount (`/` where the kernel has no such groups).
///
/// # Errors
/// When it cannot be read: no MGLRU, debugfs not mounted, or not root.
pub fn generations(root: &Path) -> Result<BTreeMap<String, u64>, FileError> {
    let text = file::text(&root.join("sys/kernel/debug/lru_gen"))?;
    let mut groups: BTreeMap<String, u64> = BTreeMap::new();
    let (mut group, mut newest) = (String::new(), 0);
    // A table of each node lists its generations, the newest last.
    for line in text.lines().map(str::trim) {
        if let Some(numbered) = line.strip_prefix("memcg") {
            let path = numbered
                .trim_start()
                .split_once(' ')
                .map_or("/", |(_, path)| path);
            path.clone_into(&mut group);
            newest = 0;
        } else if line.starts_with("node") {
            newest = 0;
        } else if let Some(number) = line.split(' ').next().and_then(|word| word.parse::<u64>().ok()) {
            *groups.entry(group.clone()).or_default() += number.saturating_sub(newest);
            newest = number;
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn machine(path: &str, text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        root
    }

    #[test]
    fn its_switches_are_bits() {
        let read = |text| {
            let enabled = Enabled::read(machine("sys/kernel/mm/lru_gen/enabled", text).path());
            (enabled.is_on(), enabled.walks_page_tables())
        };
        assert_eq!(read("0x0007\n"), (true, true));
        assert_eq!(read("0x0005\n"), (true, false));
        assert_eq!(read("0x0006\n"), (false, false));
        assert_eq!(Enabled::read(Path::new("/nowhere")), Enabled::default());
    }

    #[test]
    fn the_newest_generations_of_all_nodes_are_summed_by_group() {
        let text = "memcg     1 /\n node     0\n          2       8512        123        456 \n\
                    \u{20}         3       1000          0          7 \n node     1\n         10          5          0          0 \n\
                    memcg    77 /system.slice/a b.service\n node     0\n          4          5          0          0 \n";
        let root = machine("sys/kernel/debug/lru_gen", text);
        let expected = [("/", 13), ("/system.slice/a b.service", 4)];
        let expected = expected.map(|(path, newest)| (path.to_owned(), newest));
        assert_eq!(generations(root.path()).unwrap(), BTreeMap::from(expected));
        let without = machine(
            "sys/kernel/debug/lru_gen",
            "memcg     0 \n node     0\n          2    1  1  1 \n",
        );
        assert_eq!(
            generations(without.path()).unwrap(),
            BTreeMap::from([("/".to_owned(), 2)])
        );
        assert!(generations(Path::new("/nowhere")).unwrap_err().is_missing());
    }
}
