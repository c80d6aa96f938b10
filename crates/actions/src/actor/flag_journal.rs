//! Journal of the huge-page flags that we set, with the flags before.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_engine::TargetId;
use thermo_inject::{Call, HugeFlag};
use thermo_kernel::leftovers::{Leftover, ProcessId, Until};
use thermo_kernel::stat::{self, Image, Stat};
use thermo_units::AddrRange;

use super::vma_flags::FlaggedRanges;

/// A unit to change, and the flag it has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub unit: AddrRange,
    pub before: Option<HugeFlag>,
}

/// A process and the program it ran when we first set a flag. The flag can only still be set if both are the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    owner: ProcessId,
    image: Image,
}

impl Holder {
    /// The process that has `pid` now; `None` when there is none.
    pub(super) fn read(root: &Path, pid: u32) -> Option<Self> {
        Self::of(pid, &stat::read(root, pid).ok()?)
    }

    fn of(pid: u32, stat: &Stat) -> Option<Self> {
        let (starttime, image) = (stat.starttime, stat.image);
        let owner = ProcessId { pid, starttime };
        stat.process_lives().then_some(Self { owner, image })
    }

    /// The process id.
    pub(super) const fn pid(&self) -> u32 {
        self.owner.pid
    }

    /// Whether the process is alive and runs the same program. True where that cannot be read: its flags may
    /// still be set.
    pub(super) fn is_alive(&self, root: &Path) -> bool {
        match stat::read(root, self.pid()) {
            Ok(stat) => Self::of(self.pid(), &stat).is_some_and(|now| self.is_same(&now)),
            Err(error) => !error.is_gone(),
        }
    }

    /// Whether both are the same process and program. An unknown program counts as the same, because a
    /// process can make its program unreadable at any time.
    fn is_same(&self, other: &Self) -> bool {
        let are_known = self.image.is_known() && other.image.is_known();
        self.owner == other.owner && (self.image == other.image || !are_known)
    }

    /// The note for a flag that stays set on `range`.
    pub(super) fn leftover(&self, flag: HugeFlag, range: AddrRange) -> Leftover {
        let description = format!(
            "{} stays set on {range} ({}) of process {}, until that process ends",
            flag.name(),
            range.len(),
            self.pid()
        );
        Leftover {
            until: Until::ExitOf(self.owner),
            description,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unit {
    len: u64,
    before: Option<HugeFlag>,
    now: HugeFlag,
}

/// The changed units of one target, by start address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetFlags {
    holder: Holder,
    units: BTreeMap<u64, Unit>,
}

/// The changed units of all targets.
#[derive(Debug, Default)]
pub(super) struct FlagJournal(BTreeMap<TargetId, TargetFlags>);

impl FlagJournal {
    /// The flag that we last set on the unit at `start`.
    pub(super) fn flag(&self, target: TargetId, start: u64) -> Option<HugeFlag> {
        Some(self.0.get(&target)?.units.get(&start)?.now)
    }

    /// Records that `change` sets `now`. `before` of the first change of a unit is kept. Records of another
    /// process with the same target id are dropped.
    pub(super) fn note(&mut self, target: TargetId, holder: Holder, change: Change, now: HugeFlag) {
        let new = || TargetFlags {
            holder,
            units: BTreeMap::new(),
        };
        let flags = self.0.entry(target).or_insert_with(new);
        if !flags.holder.is_same(&holder) {
            *flags = new();
        }
        let unit = flags.units.entry(change.unit.start.0).or_insert(Unit {
            len: change.unit.len().0,
            before: change.before,
            now,
        });
        unit.now = now;
    }

    /// Drops the units of a target that no longer have the flag that we set. They were unmapped or mapped
    /// again, or the program itself set another flag, so there is nothing to restore.
    pub(super) fn forget_lost(&mut self, target: TargetId, flagged: &FlaggedRanges) {
        if let Some(flags) = self.0.get_mut(&target) {
            let is_set = |start: &u64, unit: &mut Unit| {
                flagged.has(AddrRange::new(*start, start + unit.len), unit.now)
            };
            flags.units.retain(is_set);
        }
    }

    /// A copy of the records of a target, for [`FlagJournal::restore`].
    pub(super) fn clone_of(&self, target: TargetId) -> Option<TargetFlags> {
        self.0.get(&target).cloned()
    }

    /// Resets the records of a target to a copy.
    pub(super) fn restore(&mut self, target: TargetId, flags: Option<TargetFlags>) {
        match flags {
            Some(flags) => drop(self.0.insert(target, flags)),
            None => drop(self.0.remove(&target)),
        }
    }

    /// Drops targets that have ended or run another program: their flags ended with their memory.
    pub(super) fn forget_ended(&mut self, root: &Path) {
        self.0.retain(|_, flags| flags.holder.is_alive(root));
    }

    /// The calls that restore all flags, by process. `none` is the flag that means the same as no flag.
    pub(super) fn restore_calls(&self, none: HugeFlag) -> Vec<(Holder, Vec<Call>)> {
        let calls = |flags: &TargetFlags| {
            let mut calls = Vec::new();
            for flag in [HugeFlag::HugePage, HugeFlag::NoHugePage] {
                let is_due = |unit: &Unit| unit.before.unwrap_or(none) == flag && unit.now != flag;
                let ranges = flags.ranges(is_due).into_iter();
                calls.extend(ranges.map(|range| Call { range, flag }));
            }
            (flags.holder, calls)
        };
        self.0.values().map(calls).collect()
    }

    /// Notes on all flags that stay set if this process is killed.
    pub(super) fn leftovers(&self) -> Vec<Leftover> {
        let mut leftovers = Vec::new();
        for flags in self.0.values() {
            for flag in [HugeFlag::HugePage, HugeFlag::NoHugePage] {
                for range in flags.ranges(|unit| unit.now == flag && unit.before != Some(flag)) {
                    leftovers.push(flags.holder.leftover(flag, range));
                }
            }
        }
        leftovers
    }
}

impl TargetFlags {
    fn ranges(&self, is_meant: impl Fn(&Unit) -> bool) -> Vec<AddrRange> {
        let mut ranges = Vec::new();
        for (start, unit) in self.units.iter().filter(|(_, unit)| is_meant(unit)) {
            AddrRange::new(*start, start + unit.len).coalesce_into(&mut ranges);
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use HugeFlag::{HugePage, NoHugePage};
    use thermo_kernel::{maps, smaps};

    const TARGET: TargetId = TargetId(3);

    fn holder(pid: u32, starttime: u64) -> Holder {
        Holder {
            owner: ProcessId { pid, starttime },
            image: Image::default(),
        }
    }

    fn change(n: u64, before: Option<HugeFlag>) -> Change {
        Change {
            unit: AddrRange::new(n << 21, (n + 1) << 21),
            before,
        }
    }

    #[test]
    fn flags_of_process_whose_state_cannot_be_read_stay_recorded() {
        let root = tempfile::tempdir().unwrap();
        let mut journal = FlagJournal::default();
        journal.note(TARGET, holder(7, 1), change(0, None), HugePage);
        // A folder in the place of the file: the kernel refuses to read it.
        std::fs::create_dir_all(root.path().join("proc/7/stat")).unwrap();
        journal.forget_ended(root.path());
        assert_eq!(journal.leftovers().len(), 1);
        std::fs::remove_dir_all(root.path().join("proc/7")).unwrap();
        journal.forget_ended(root.path());
        assert_eq!(journal.leftovers(), [], "the process has ended");
    }

    #[test]
    fn journal_restores_first_flag() {
        let mut journal = FlagJournal::default();
        for n in 0..4 {
            journal.note(
                TARGET,
                holder(7, 1),
                change(n, (n >= 2).then_some(HugePage)),
                NoHugePage,
            );
        }
        // Unit 1 turned hot again. With mode `always` its flag is what it was before.
        journal.note(TARGET, holder(7, 1), change(1, Some(NoHugePage)), HugePage);
        assert_eq!(journal.flag(TARGET, 1 << 21), Some(HugePage));
        let call = |start: u64, end: u64, flag| Call {
            range: AddrRange::new(start << 21, end << 21),
            flag,
        };
        assert_eq!(
            journal.restore_calls(HugePage),
            [(holder(7, 1), vec![call(0, 1, HugePage), call(2, 4, HugePage)])]
        );
        assert_eq!(
            journal.restore_calls(NoHugePage),
            [(holder(7, 1), vec![call(2, 4, HugePage), call(1, 2, NoHugePage)])]
        );
    }

    #[test]
    fn journal_drops_records_of_reused_pid() {
        let mut journal = FlagJournal::default();
        journal.note(TARGET, holder(7, 1), change(1, None), NoHugePage);
        journal.note(TARGET, holder(7, 2), change(2, None), NoHugePage);
        assert_eq!(journal.flag(TARGET, 1 << 21), None);
        assert_eq!(journal.flag(TARGET, 2 << 21), Some(NoHugePage));
        let (root, us) = (Path::new("/"), std::process::id());
        let mut now = Holder::read(root, us).unwrap();
        journal.note(TARGET, now, change(1, None), NoHugePage);
        journal.forget_ended(root);
        assert_eq!(journal.leftovers().len(), 1);
        now.owner.starttime += 1;
        journal.note(TARGET, now, change(1, None), NoHugePage);
        journal.forget_ended(root);
        assert_eq!(
            (journal.leftovers(), journal.restore_calls(HugePage)),
            (vec![], vec![])
        );
    }

    #[test]
    fn restore_drops_record_of_failed_call() {
        let mut journal = FlagJournal::default();
        let before = journal.clone_of(TARGET);
        journal.note(TARGET, holder(7, 1), change(0, None), NoHugePage);
        journal.restore(TARGET, before);
        assert_eq!(journal.flag(TARGET, 0), None);
        assert!(journal.restore_calls(HugePage).is_empty());
    }

    #[test]
    fn journal_drops_remapped_units() {
        let mut journal = FlagJournal::default();
        for n in 0..3 {
            journal.note(TARGET, holder(7, 1), change(n, None), NoHugePage);
        }
        let mapping = |start: u64, end: u64, flags: &str| smaps::Vma {
            mapping: maps::Mapping {
                range: AddrRange::new(start << 21, end << 21),
                perms: maps::Perms::default(),
                offset: 0,
                inode: 0,
                name: String::new(),
            },
            counts: smaps::Counts::default(),
            vm_flags: flags.to_owned(),
        };
        // The second unit was unmapped and mapped again; the third was unmapped.
        let now = [mapping(0, 1, "rd nh"), mapping(1, 2, "rd wr")];
        journal.forget_lost(TARGET, &FlaggedRanges::new(&now));
        let flags = [0, 1, 2].map(|n| journal.flag(TARGET, n << 21));
        assert_eq!(flags, [Some(NoHugePage), None, None]);
        journal.forget_lost(TargetId(9), &FlaggedRanges::new(&now));
    }

    #[test]
    fn leftovers_name_range_and_process() {
        let mut journal = FlagJournal::default();
        let us = holder(7, 1);
        journal.note(TARGET, us, change(1, None), NoHugePage);
        journal.note(TARGET, us, change(2, None), NoHugePage);
        let left = journal.leftovers();
        assert_eq!(left.len(), 1);
        assert!(
            left[0].description.contains("MADV_NOHUGEPAGE") && left[0].description.contains("4.00 MiB"),
            "{left:?}"
        );
        assert_eq!(left[0].until, Until::ExitOf(us.owner));
    }
}
