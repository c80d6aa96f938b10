//! The control groups of `unit` targets. Finding a unit may need a search through the whole tree of groups.

use std::collections::BTreeMap;

use thermo_kernel::cgroup::Group;
use thermo_units::Nanos;

/// Time until a unit that was not found is searched again.
const RETRY_AFTER: Nanos = Nanos::secs(1);

/// The groups found last, by application.
#[derive(Debug, Default)]
pub(super) struct UnitCache {
    groups: BTreeMap<String, (Nanos, Option<Group>)>,
}

impl UnitCache {
    /// The group of the unit of `app`. A group that was found is kept while it exists.
    pub(super) fn group(
        &mut self,
        app: &str,
        find: impl FnOnce() -> Option<Group>,
        now: Nanos,
    ) -> Option<Group> {
        if let Some((searched_at, group)) = self.groups.get(app) {
            let is_valid = match group {
                Some(group) => group.dir.exists(),
                None => now.saturating_sub(*searched_at) < RETRY_AFTER,
            };
            if is_valid {
                return group.clone();
            }
        }
        let group = find();
        self.groups.insert(app.to_owned(), (now, group.clone()));
        group
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::cell::Cell;
    use std::fs;

    use thermo_kernel::cgroup::Version;

    use super::*;

    #[test]
    fn unit_is_searched_when_it_vanished_or_after_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a.service");
        let (mut cache, searches) = (UnitCache::default(), Cell::new(0));
        let mut is_found = |ms| {
            let find = || {
                searches.set(searches.get() + 1);
                let dir = dir.clone();
                let version = Version::V2;
                dir.exists().then_some(Group { version, dir })
            };
            cache.group("a", find, Nanos::millis(ms)).is_some()
        };
        assert_eq!((is_found(0), is_found(999), searches.get()), (false, false, 1));
        fs::create_dir(&dir).unwrap();
        assert_eq!(
            (is_found(1000), is_found(90_000), searches.get()),
            (true, true, 2)
        );
        fs::remove_dir(&dir).unwrap();
        assert_eq!(
            (is_found(90_001), is_found(90_002), searches.get()),
            (false, false, 3)
        );
    }
}
