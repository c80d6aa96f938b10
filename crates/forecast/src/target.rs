//! The memory of a target in the replay: what each way of replaying answers, and what is known of mappings.

use thermo_engine::Region;
use thermo_engine::access_tables::{AccessTables, Backing};
use thermo_engine::scheme::{OpsFilter, OpsFilterKind};
use thermo_recording::model::{Mapping, Snapshot, Target};
use thermo_units::{AddrRange, Bytes};

/// Bytes by [`Backing`].
pub type ByBacking = [u64; 3];

/// All backings, in the order of [`ByBacking`].
pub const BACKINGS: [Backing; 3] = [Backing::Anon, Backing::File, Backing::Shmem];

/// One snapshot of a target, with the mappings and the size last recorded before it.
#[derive(Debug, Clone, Copy)]
pub struct TargetView<'a> {
    pub snapshot: &'a Snapshot,
    pub target: &'a Target,
    pub known: &'a Known,
}

/// Mappings and size of a target, as last recorded.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Ascending, disjoint. `None`: never recorded.
    pub mappings: Option<Vec<(AddrRange, Backing)>>,
    pub rss: Option<u64>,
    pub swap: u64,
}

/// The memory of a target in the replay.
pub trait TargetMemory: std::fmt::Debug {
    /// Follows the recording to the snapshot of `view`. Returns the bytes that had left and were accessed.
    fn update(&mut self, view: &TargetView<'_>) -> u64;

    /// The resident memory, for the engine.
    fn regions(&mut self, view: &TargetView<'_>) -> Vec<Region>;

    /// Pages out the part of `range` that `filters` let pass. Returns its bytes.
    fn page_out(&mut self, range: AddrRange, filters: &PageFilters<'_>) -> Bytes;

    /// Bytes that have left.
    fn out(&self) -> ByBacking;
}

/// The filters on pages of a request.
#[derive(Debug, Clone, Copy)]
pub struct PageFilters<'a>(pub &'a [OpsFilter]);

impl PageFilters<'_> {
    /// True if memory of this `backing` passes. `accessed`: found accessed by the last check. Filters that a
    /// recording cannot answer are left out.
    pub fn pass(&self, backing: Backing, accessed: bool) -> bool {
        let answered = self
            .0
            .iter()
            .filter_map(|filter| Some((filter, has_property(&filter.kind, backing, accessed)?)));
        let mut last_allows = false;
        for (filter, has) in answered {
            if has == filter.matching {
                return filter.allow;
            }
            last_allows = filter.allow;
        }
        // A list whose last filter allows means "only these", as in the engine.
        !last_allows
    }

    /// The names of filters that a recording cannot answer.
    pub fn unanswered(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().filter_map(|filter| match filter.kind {
            OpsFilterKind::Memcg(_) => Some("memcg"),
            OpsFilterKind::Active => Some("active"),
            OpsFilterKind::HugepageSize { .. } => Some("hugepage_size"),
            OpsFilterKind::Anon | OpsFilterKind::Young | OpsFilterKind::Unmapped => None,
        })
    }
}

fn has_property(kind: &OpsFilterKind, backing: Backing, accessed: bool) -> Option<bool> {
    match kind {
        OpsFilterKind::Anon => Some(backing == Backing::Anon),
        OpsFilterKind::Young => Some(accessed),
        // A target's memory is mapped by it.
        OpsFilterKind::Unmapped => Some(false),
        OpsFilterKind::Memcg(_) | OpsFilterKind::Active | OpsFilterKind::HugepageSize { .. } => None,
    }
}

/// The tables of a target whose every page was scanned; `None` if regions are all that is known.
pub fn scanned_tables(target: &Target) -> Option<&AccessTables> {
    target.tables.as_deref().filter(|_| target.scanned == Some(true))
}

/// The backing of a mapping, from its name in `/proc/PID/maps`.
pub fn backing_of(mapping: &Mapping) -> Backing {
    let is_shmem = ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"]
        .iter()
        .any(|prefix| mapping.name.starts_with(prefix));
    match mapping.name.starts_with('/') {
        _ if is_shmem => Backing::Shmem,
        true => Backing::File,
        false => Backing::Anon,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(kind: OpsFilterKind, matching: bool, allow: bool) -> OpsFilter {
        OpsFilter {
            kind,
            matching,
            allow,
        }
    }

    #[test]
    fn first_answered_filter_decides() {
        let memcg = || OpsFilterKind::Memcg("/a".to_owned());
        for (filters, anon, file) in [
            (vec![], true, true),
            (vec![filter(OpsFilterKind::Anon, true, false)], false, true),
            (vec![filter(OpsFilterKind::Anon, true, true)], true, false),
            (vec![filter(OpsFilterKind::Anon, false, false)], true, false),
            (vec![filter(memcg(), true, true)], true, true),
            (
                vec![
                    filter(memcg(), true, false),
                    filter(OpsFilterKind::Anon, true, false),
                ],
                false,
                true,
            ),
        ] {
            let filters = PageFilters(&filters);
            let passes = [Backing::Anon, Backing::File].map(|backing| filters.pass(backing, false));
            assert_eq!(passes, [anon, file], "{filters:?}");
        }
        let young = [filter(OpsFilterKind::Young, true, false)];
        assert!(!PageFilters(&young).pass(Backing::Anon, true));
        assert!(PageFilters(&young).pass(Backing::Anon, false));
    }

    #[test]
    fn backing_follows_name_of_mapping() {
        let backing = |name: &str| {
            backing_of(&Mapping {
                name: name.to_owned(),
                ..Mapping::default()
            })
        };
        assert_eq!(backing("/usr/lib/libc.so.6"), Backing::File);
        assert_eq!(backing("/memfd:heap (deleted)"), Backing::Shmem);
        assert_eq!(["", "[heap]"].map(backing), [Backing::Anon; 2]);
    }
}
