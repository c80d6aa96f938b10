//! Room left below a memory limit: the only sign that comes before any stall.

use thermo_kernel::cgroup::Group;
use thermo_kernel::memcg::Memcg;
use thermo_units::{Bytes, Nanos, Permille};

use super::{Source, SourceError};

/// Watches a group and all groups above it that have a limit.
#[derive(Debug)]
pub struct Headroom {
    limited: Vec<Memcg>,
    least: Permille,
}

impl Headroom {
    /// Pressure is when less than `least` of a limit is left, page cache counted as left.
    ///
    /// # Errors
    /// When the group cannot be read, or neither it nor a group above it has a limit.
    pub fn new(group: &Group, least: Permille) -> Result<Self, SourceError> {
        let limited = Memcg::limited(group)?;
        if limited.is_empty() {
            return Err(SourceError::NoLimit(group.dir.clone()));
        }
        Ok(Self { limited, least })
    }
}

impl Source for Headroom {
    fn name(&self) -> String {
        let dirs: Vec<_> = self
            .limited
            .iter()
            .map(|one| one.dir().display().to_string())
            .collect();
        format!("room below the limit of {}", dirs.join(", "))
    }

    fn check(&mut self, _now: Nanos) -> Result<Option<String>, SourceError> {
        for one in &self.limited {
            let Some(limit) = one.effective_limit()? else {
                continue;
            };
            let least = Bytes(limit.0 / 1000 * u64::from(self.least.0));
            let usage = one.usage()?;
            if limit.saturating_sub(usage) >= least {
                continue;
            }
            // Dearer to read, so only now.
            let left = limit.saturating_sub(usage.saturating_sub(one.evictable()?));
            if left < least {
                return Ok(Some(format!("{left} left of {limit}, less than {least}")));
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

    fn ask(group: &Group) -> Option<String> {
        let mut source = Headroom::new(group, Permille(100)).unwrap();
        source.check(Nanos::ZERO).unwrap()
    }

    #[test]
    fn page_cache_counts_as_left() {
        let files = [
            ("memory.limit_in_bytes", "1000000\n"),
            ("memory.usage_in_bytes", "990000\n"),
            (
                "memory.stat",
                "inactive_file 1\ntotal_inactive_file 50000\ntotal_active_file 40001\n",
            ),
        ];
        let (_root, group) = group(Version::V1, &files);
        assert_eq!(ask(&group), None);
        std::fs::write(group.dir.join("memory.stat"), "total_inactive_file 50000\n").unwrap();
        assert!(ask(&group).unwrap().contains("left of"));
    }

    #[test]
    fn the_lower_limit_counts() {
        let files = [
            ("memory.max", "max\n"),
            ("memory.high", "1000000\n"),
            ("memory.current", "950000\n"),
            ("memory.stat", "anon 950000\n"),
        ];
        let (_root, group) = group(Version::V2, &files);
        assert!(ask(&group).is_some());
        std::fs::write(group.dir.join("memory.current"), "900000\n").unwrap();
        assert_eq!(ask(&group), None);
    }

    #[test]
    fn a_limit_above_the_group_is_found() {
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
            ask(&Group {
                version: Version::V2,
                dir
            })
            .is_some()
        );
    }

    #[test]
    fn without_a_limit_there_is_nothing_to_watch() {
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
