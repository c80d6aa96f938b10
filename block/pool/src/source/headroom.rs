//! Room left below a memory limit: the only signal that precedes any stall.

use thermo_kernel::cgroup::Group;
use thermo_kernel::memcg::Memcg;
use thermo_units::{Bytes, Nanos, Permille};

use super::{Source, SourceError};

/// Monitors a control group and all its ancestors that have a limit.
#[derive(Debug)]
pub struct Headroom {
    limited: Vec<Memcg>,
    min: Permille,
}

impl Headroom {
    /// Pressure: less than `min` of a limit is left. Evictable page cache counts as left.
    ///
    /// # Errors
    /// The group cannot be read, or neither the group nor an ancestor has a limit.
    pub fn new(group: &Group, min: Permille) -> Result<Self, SourceError> {
        let limited = Memcg::with_limits(group)?;
        if limited.is_empty() {
            return Err(SourceError::NoLimit(group.dir.clone()));
        }
        Ok(Self { limited, min })
    }
}

impl Source for Headroom {
    fn name(&self) -> String {
        let dirs: Vec<_> = self
            .limited
            .iter()
            .map(|memcg| memcg.dir().display().to_string())
            .collect();
        format!("room below the limit of {}", dirs.join(", "))
    }

    fn check(&mut self, _now: Nanos) -> Result<Option<String>, SourceError> {
        for memcg in &self.limited {
            let Some(limit) = memcg.effective_limit()? else {
                continue;
            };
            let min = Bytes(limit.0 / 1000 * u64::from(self.min.0));
            let usage = memcg.usage()?;
            if limit.saturating_sub(usage) >= min {
                continue;
            }
            // `memory.stat` is more expensive to read, so only near the limit.
            let left = limit.saturating_sub(usage.saturating_sub(memcg.reclaimable_file()?));
            if left < min {
                return Ok(Some(format!("{left} left of {limit}, less than {min}")));
            }
        }
        Ok(None)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_kernel::cgroup::Version;

    fn group(version: Version, files: &[(&str, &str)]) -> (tempfile::TempDir, Group) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("service");
        std::fs::create_dir(&dir).unwrap();
        for (name, text) in files {
            std::fs::write(dir.join(name), text).unwrap();
        }
        (root, Group { version, dir })
    }

    fn check(group: &Group) -> Option<String> {
        let mut source = Headroom::new(group, Permille(100)).unwrap();
        source.check(Nanos::ZERO).unwrap()
    }

    #[test]
    fn headroom_counts_page_cache_as_free() {
        let files = [
            ("memory.limit_in_bytes", "1000000\n"),
            ("memory.usage_in_bytes", "990000\n"),
            (
                "memory.stat",
                "inactive_file 1\ntotal_inactive_file 50000\ntotal_active_file 40001\n",
            ),
        ];
        let (_root, group) = group(Version::V1, &files);
        assert_eq!(check(&group), None);
        std::fs::write(group.dir.join("memory.stat"), "total_inactive_file 50000\n").unwrap();
        assert!(check(&group).unwrap().contains("left of"));
    }

    #[test]
    fn headroom_uses_lower_of_high_and_max() {
        let files = [
            ("memory.max", "max\n"),
            ("memory.high", "1000000\n"),
            ("memory.current", "950000\n"),
            ("memory.stat", "anon 950000\n"),
        ];
        let (_root, group) = group(Version::V2, &files);
        assert!(check(&group).is_some());
        std::fs::write(group.dir.join("memory.current"), "900000\n").unwrap();
        assert_eq!(check(&group), None);
    }

    #[test]
    fn headroom_finds_limit_of_ancestor() {
        let files = [
            ("memory.max", "1000\n"),
            ("memory.high", "max\n"),
            ("memory.current", "999\n"),
            ("memory.stat", ""),
        ];
        let (_root, above) = group(Version::V2, &files);
        let dir = above.dir.join("below");
        std::fs::create_dir(&dir).unwrap();
        for (name, text) in [
            ("memory.max", "max"),
            ("memory.current", "1"),
            ("memory.stat", ""),
        ] {
            std::fs::write(dir.join(name), text).unwrap();
        }
        assert!(
            check(&Group {
                version: Version::V2,
                dir
            })
            .is_some()
        );
    }

    #[test]
    fn headroom_rejects_group_without_limit() {
        let files = [
            ("memory.max", "max\n"),
            ("memory.high", "max\n"),
            ("memory.stat", ""),
        ];
        let (_root, group) = group(Version::V2, &files);
        let error = Headroom::new(&group, Permille(100)).unwrap_err();
        assert!(matches!(error, SourceError::NoLimit(_)));
    }
}
