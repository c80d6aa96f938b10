//! What flags mappings have, and where one would change something: judged by the lines of smaps.

use thermo_inject::HugeFlag;
use thermo_kernel::smaps;
use thermo_units::AddrRange;

/// Whether `unit` needs `flag`: the flag it has now, if any. Nothing when it has it, or cannot get it, or it would
/// change nothing.
pub(super) fn needed(
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
        .find(|flag| vma.has_flag(flag.letters()));
    let changes = now != Some(flag) && (everywhere || now == Some(flag.opposite()));
    changes.then_some(now)
}

/// What of `range` has `flag`.
pub(super) fn having(vmas: &[smaps::Vma], range: AddrRange, flag: HugeFlag) -> Vec<AddrRange> {
    let mut ranges = Vec::new();
    for vma in vmas.iter().filter(|vma| vma.has_flag(flag.letters())) {
        if let Some(part) = vma.mapping.range.intersection(&range) {
            part.join_onto(&mut ranges);
        }
    }
    ranges
}

/// Where mappings have each of the flags.
#[derive(Debug, Default)]
pub(super) struct Flagged {
    huge: Vec<AddrRange>,
    small: Vec<AddrRange>,
}

impl Flagged {
    /// As `vmas` say.
    pub(super) fn of(vmas: &[smaps::Vma]) -> Self {
        let everywhere = AddrRange::new(0, u64::MAX);
        Self {
            huge: having(vmas, everywhere, HugeFlag::HugePage),
            small: having(vmas, everywhere, HugeFlag::NoHugePage),
        }
    }

    /// Whether all of `unit` has `flag`: not where it was unmapped since, or mapped anew.
    pub(super) fn has(&self, unit: AddrRange, flag: HugeFlag) -> bool {
        let ranges = match flag {
            HugeFlag::HugePage => &self.huge,
            HugeFlag::NoHugePage => &self.small,
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
    fn a_flag_is_needed_only_where_it_changes_something() {
        use HugeFlag::{HugePage, NoHugePage};
        let vmas = [
            vma(0, 4, "rd wr"),
            vma(4, 8, "rd hg"),
            vma(8, 12, "rd nh"),
            vma(12, 16, "rd ht"),
        ];
        assert_eq!(needed(&vmas, unit(1), NoHugePage, true), Some(None));
        assert_eq!(
            needed(&vmas, unit(1), NoHugePage, false),
            None,
            "the mode forbids already"
        );
        assert_eq!(needed(&vmas, unit(5), NoHugePage, false), Some(Some(HugePage)));
        assert_eq!(needed(&vmas, unit(9), NoHugePage, true), None);
        assert_eq!(needed(&vmas, unit(9), HugePage, true), Some(Some(NoHugePage)));
        assert_eq!(needed(&vmas, unit(13), NoHugePage, true), None, "hugetlb");
        assert_eq!(needed(&vmas, unit(17), NoHugePage, true), None, "a hole");
        assert_eq!(
            needed(
                &vmas,
                AddrRange::new((3 << 21) + 4096, (4 << 21) + 4096),
                NoHugePage,
                true
            ),
            None
        );
    }

    #[test]
    fn only_what_has_the_flag_still_is_put_back() {
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
            having(&vmas, range(1, 10), NoHugePage),
            [range(1, 4), range(8, 9)]
        );
        assert_eq!(having(&vmas, range(1, 10), HugePage), [range(9, 10)]);
        assert_eq!(having(&vmas, range(5, 8), NoHugePage), []);
    }

    #[test]
    fn a_unit_that_was_mapped_anew_has_no_flag() {
        use HugeFlag::NoHugePage;
        let flagged = Flagged::of(&[vma(0, 2, "rd nh"), vma(2, 4, "rd nh"), vma(4, 6, "rd wr")]);
        let has = |start: u64, end: u64| flagged.has(AddrRange::new(start << 21, end << 21), NoHugePage);
        assert!(has(1, 2) && has(2, 3));
        assert!(has(1, 3), "two mappings");
        assert!(!has(4, 5), "without it");
        assert!(!has(7, 8), "a hole");
        assert!(!has(3, 5), "a part");
        assert!(!flagged.has(unit(1), HugeFlag::HugePage));
    }
}
