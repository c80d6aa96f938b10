//! Huge-page flags of mappings, read from smaps, and where setting a flag has an effect.

use thermo_inject::HugeFlag;
use thermo_kernel::smaps;
use thermo_units::AddrRange;

/// The current flag of `unit`, if setting `flag` has an effect. `None` when the unit already has the flag,
/// cannot get it, or the flag would change nothing. `everywhere`: the flag also has an effect on mappings
/// without a flag.
pub(super) fn flag_to_replace(
    vmas: &[smaps::Vma],
    unit: AddrRange,
    flag: HugeFlag,
    everywhere: bool,
) -> Option<Option<HugeFlag>> {
    let at = vmas.partition_point(|vma| vma.mapping.range.end <= unit.start);
    let vma = vmas
        .get(at)
        .filter(|vma| vma.mapping.range.start <= unit.start && unit.end <= vma.mapping.range.end)?;
    let is_memory = vma.mapping.inode == 0 && !vma.mapping.perms.shared && vma.mapping.perms.write;
    if !is_memory || ["ht", "io", "pf"].iter().any(|kind| vma.has_flag(kind)) {
        return None;
    }
    let now = [HugeFlag::HugePage, HugeFlag::NoHugePage]
        .into_iter()
        .find(|flag| vma.has_flag(flag.vm_flag()));
    let changes = now != Some(flag) && (everywhere || now == Some(flag.opposite()));
    changes.then_some(now)
}

/// The parts of `range` that have `flag`.
pub(super) fn ranges_with_flag(vmas: &[smaps::Vma], range: AddrRange, flag: HugeFlag) -> Vec<AddrRange> {
    let mut ranges = Vec::new();
    for vma in vmas.iter().filter(|vma| vma.has_flag(flag.vm_flag())) {
        if let Some(part) = vma.mapping.range.intersection(&range) {
            part.coalesce_into(&mut ranges);
        }
    }
    ranges
}

/// The ranges of a process that have each flag.
#[derive(Debug, Default)]
pub(super) struct FlaggedRanges {
    huge: Vec<AddrRange>,
    no_huge: Vec<AddrRange>,
}

impl FlaggedRanges {
    /// Reads the flags of `vmas`.
    pub(super) fn new(vmas: &[smaps::Vma]) -> Self {
        let everywhere = AddrRange::new(0, u64::MAX);
        Self {
            huge: ranges_with_flag(vmas, everywhere, HugeFlag::HugePage),
            no_huge: ranges_with_flag(vmas, everywhere, HugeFlag::NoHugePage),
        }
    }

    /// Whether all of `unit` has `flag`. False if it was unmapped or mapped again.
    pub(super) fn has(&self, unit: AddrRange, flag: HugeFlag) -> bool {
        let ranges = match flag {
            HugeFlag::HugePage => &self.huge,
            HugeFlag::NoHugePage => &self.no_huge,
        };
        let at = ranges.partition_point(|range| range.end <= unit.start);
        ranges
            .get(at)
            .is_some_and(|range| range.start <= unit.start && unit.end <= range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_kernel::maps::{Mapping, Perms};

    fn vma(start: u64, end: u64, vm_flags: &str) -> smaps::Vma {
        smaps::Vma {
            mapping: Mapping {
                range: AddrRange::new(start << 21, end << 21),
                perms: Perms {
                    read: true,
                    write: true,
                    ..Perms::default()
                },
                offset: 0,
                inode: 0,
                name: String::new(),
            },
            counts: smaps::Counts::default(),
            vm_flags: vm_flags.to_owned(),
        }
    }

    fn unit(n: u64) -> AddrRange {
        AddrRange::new(n << 21, (n + 1) << 21)
    }

    #[test]
    fn flag_is_needed_only_where_it_has_effect() {
        use HugeFlag::{HugePage, NoHugePage};
        let vmas = [
            vma(0, 4, "rd wr"),
            vma(4, 8, "rd hg"),
            vma(8, 12, "rd nh"),
            vma(12, 16, "rd ht"),
        ];
        assert_eq!(flag_to_replace(&vmas, unit(1), NoHugePage, true), Some(None));
        assert_eq!(
            flag_to_replace(&vmas, unit(1), NoHugePage, false),
            None,
            "the mode already forbids huge pages"
        );
        assert_eq!(
            flag_to_replace(&vmas, unit(5), NoHugePage, false),
            Some(Some(HugePage))
        );
        assert_eq!(flag_to_replace(&vmas, unit(9), NoHugePage, true), None);
        assert_eq!(
            flag_to_replace(&vmas, unit(9), HugePage, true),
            Some(Some(NoHugePage))
        );
        assert_eq!(
            flag_to_replace(&vmas, unit(13), NoHugePage, true),
            None,
            "hugetlb"
        );
        assert_eq!(flag_to_replace(&vmas, unit(17), NoHugePage, true), None, "a hole");
        assert_eq!(
            flag_to_replace(
                &vmas,
                AddrRange::new((3 << 21) + 4096, (4 << 21) + 4096),
                NoHugePage,
                true
            ),
            None
        );
    }

    #[test]
    fn ranges_with_flag_skips_other_mappings() {
        use HugeFlag::{HugePage, NoHugePage};
        let vmas = [
            vma(0, 2, "rd nh"),
            vma(2, 4, "rd nh"),
            vma(4, 6, "rd wr"),
            vma(8, 9, "rd nh"),
            vma(9, 12, "rd hg"),
        ];
        let range = |start: u64, end: u64| AddrRange::new(start << 21, end << 21);
        assert_eq!(
            ranges_with_flag(&vmas, range(1, 10), NoHugePage),
            [range(1, 4), range(8, 9)]
        );
        assert_eq!(ranges_with_flag(&vmas, range(1, 10), HugePage), [range(9, 10)]);
        assert_eq!(ranges_with_flag(&vmas, range(5, 8), NoHugePage), []);
    }

    #[test]
    fn flagged_ranges_require_flag_on_whole_unit() {
        use HugeFlag::NoHugePage;
        let flagged = FlaggedRanges::new(&[vma(0, 2, "rd nh"), vma(2, 4, "rd nh"), vma(4, 6, "rd wr")]);
        let has = |start: u64, end: u64| flagged.has(AddrRange::new(start << 21, end << 21), NoHugePage);
        assert!(has(1, 2) && has(2, 3));
        assert!(has(1, 3), "two mappings");
        assert!(!has(4, 5), "no flag");
        assert!(!has(7, 8), "a hole");
        assert!(!has(3, 5), "only a part");
        assert!(!flagged.has(unit(1), HugeFlag::HugePage));
    }
}
