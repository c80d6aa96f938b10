//! What flags we set where, and what was there before.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_engine::TargetId;
use thermo_inject::{Call, HugeFlag};
use thermo_kernel::leftovers::{Leftover, Owner};
use thermo_kernel::stat::{self, Image};
use thermo_units::AddrRange;

use super::flag_needs::Flagged;

/// A unit to be changed, and the flag it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub unit: AddrRange,
    pub before: Option<HugeFlag>,
}

/// A process and the program it ran when we first set a flag: both must be the same for the flag to be still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    owner: Owner,
    image: Image,
}

impl Holder {
    /// The process `pid` there is now.
    pub(super) fn of(root: &Path, pid: u32) -> Option<Self> {
        let stat = stat::read(root, pid).ok()?;
        let (starttime, image) = (stat.starttime, stat.image);
        let owner = Owner { pid, starttime };
        stat.process_lives().then_some(Self { owner, image })
    }

    /// Its number.
    pub(super) const fn pid(&self) -> u32 {
        self.owner.pid
    }

    /// Whether it lives, and runs the same program.
    pub(super) fn lives(&self, root: &Path) -> bool {
        Self::of(root, self.pid()).is_some_and(|now| self.is(&now))
    }

    /// Whether both are the same, as far as may be known: a process can forbid looking at what it runs at any time.
    fn is(&self, other: &Self) -> bool {
        let are_known = self.image.is_known() && other.image.is_known();
        self.owner == other.owner && (self.image == other.image || !are_known)
    }

    /// The sentence for what stays set on `range`.
    pub(super) fn leftover(&self, flag: HugeFlag, range: AddrRange) -> Leftover {
        let what = format!(
            "{} stays set on {range} ({}) of process {}, until that process ends",
            flag.name(),
            range.len(),
            self.pid()
        );
        Leftover {
            within: Some(self.owner),
            what,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unit {
    len: u64,
    before: Option<HugeFlag>,
    now: HugeFlag,
}

/// The units of one target by their begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pages {
    holder: Holder,
    units: BTreeMap<u64, Unit>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct FlagJournal(BTreeMap<TargetId, Pages>);

impl FlagJournal {
    /// The flag we set last on the unit at `start`.
    pub(super) fn flag(&self, target: TargetId, start: u64) -> Option<HugeFlag> {
        Some(self.0.get(&target)?.units.get(&start)?.now)
    }

    /// Notes that `change` leads to `now`. What was before the first change stays what was before; what is noted of
    /// another holder is over.
    pub(super) fn note(&mut self, target: TargetId, holder: Holder, change: Change, now: HugeFlag) {
        let new = || Pages {
            holder,
            units: BTreeMap::new(),
        };
        let pages = self.0.entry(target).or_insert_with(new);
        if !pages.holder.is(&holder) {
            *pages = new();
        }
        let unit = pages.units.entry(change.unit.start.0).or_insert(Unit {
            len: change.unit.len().0,
            before: change.before,
            now,
        });
        unit.now = now;
    }

    /// Forgets the units of a target that no longer have the flag we set: they were unmapped, mapped anew, or given
    /// another flag by the program itself, so that there is nothing of ours to put back.
    pub(super) fn forget_lost(&mut self, target: TargetId, flagged: &Flagged) {
        if let Some(pages) = self.0.get_mut(&target) {
            let stands = |start: &u64, unit: &mut Unit| {
                flagged.has(AddrRange::new(*start, start + unit.len), unit.now)
            };
            pages.units.retain(stands);
        }
    }

    /// What is noted of a target.
    pub(super) fn clone_of(&self, target: TargetId) -> Option<Pages> {
        self.0.get(&target).cloned()
    }

    /// Sets it back.
    pub(super) fn restore(&mut self, target: TargetId, pages: Option<Pages>) {
        match pages {
            Some(pages) => drop(self.0.insert(target, pages)),
            None => drop(self.0.remove(&target)),
        }
    }

    /// Forgets targets that have ended or run another program: their flags went with their memory.
    pub(super) fn forget_ended(&mut self, root: &Path) {
        self.0.retain(|_, pages| pages.holder.lives(root));
    }

    /// The calls that put everything back, by their holders, where no flag at all is the same as `none`.
    pub(super) fn to_put_back(&self, none: HugeFlag) -> Vec<(Holder, Vec<Call>)> {
        let calls = |pages: &Pages| {
            let mut calls = Vec::new();
            for flag in [HugeFlag::HugePage, HugeFlag::NoHugePage] {
                let is_due = |unit: &Unit| unit.before.unwrap_or(none) == flag && unit.now != flag;
                let ranges = pages.ranges(is_due).into_iter();
                calls.extend(ranges.map(|range| Call { range, flag }));
            }
            (pages.holder, calls)
        };
        self.0.values().map(calls).collect()
    }

    /// The sentences for whoever finds them when we are dead.
    pub(super) fn leftovers(&self) -> Vec<Leftover> {
        let mut left = Vec::new();
        for pages in self.0.values() {
            for flag in [HugeFlag::HugePage, HugeFlag::NoHugePage] {
                for range in pages.ranges(|unit| unit.now == flag && unit.before != Some(flag)) {
                    left.push(pages.holder.leftover(flag, range));
                }
            }
        }
        left
    }
}

impl Pages {
    fn ranges(&self, is_meant: impl Fn(&Unit) -> bool) -> Vec<AddrRange> {
        let mut ranges = Vec::new();
        for (start, unit) in self.units.iter().filter(|(_, unit)| is_meant(unit)) {
            AddrRange::new(*start, start + unit.len).join_onto(&mut ranges);
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
            owner: Owner { pid, starttime },
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
    fn what_was_first_is_put_back() {
        let mut journal = FlagJournal::default();
        for n in 0..4 {
            journal.note(
                TARGET,
                holder(7, 1),
                change(n, (n >= 2).then_some(HugePage)),
                NoHugePage,
            );
        }
        // Unit 1 turned hot again, which is how it was meant to be where the mode is `always`.
        journal.note(TARGET, holder(7, 1), change(1, Some(NoHugePage)), HugePage);
        assert_eq!(journal.flag(TARGET, 1 << 21), Some(HugePage));
        let call = |start: u64, end: u64, flag| Call {
            range: AddrRange::new(start << 21, end << 21),
            flag,
        };
        assert_eq!(
            journal.to_put_back(HugePage),
            [(holder(7, 1), vec![call(0, 1, HugePage), call(2, 4, HugePage)])]
        );
        assert_eq!(
            journal.to_put_back(NoHugePage),
            [(holder(7, 1), vec![call(2, 4, HugePage), call(1, 2, NoHugePage)])]
        );
    }

    #[test]
    fn another_process_of_the_same_number_has_none_of_it() {
        let mut journal = FlagJournal::default();
        journal.note(TARGET, holder(7, 1), change(1, None), NoHugePage);
        journal.note(TARGET, holder(7, 2), change(2, None), NoHugePage);
        assert_eq!(journal.flag(TARGET, 1 << 21), None);
        assert_eq!(journal.flag(TARGET, 2 << 21), Some(NoHugePage));
        let (root, us) = (Path::new("/"), std::process::id());
        let mut now = Holder::of(root, us).unwrap();
        journal.note(TARGET, now, change(1, None), NoHugePage);
        journal.forget_ended(root);
        assert_eq!(journal.leftovers().len(), 1);
        now.owner.starttime += 1;
        journal.note(TARGET, now, change(1, None), NoHugePage);
        journal.forget_ended(root);
        assert_eq!(
            (journal.leftovers(), journal.to_put_back(HugePage)),
            (vec![], vec![])
        );
    }

    #[test]
    fn a_call_that_was_not_made_is_forgotten() {
        let mut journal = FlagJournal::default();
        let before = journal.clone_of(TARGET);
        journal.note(TARGET, holder(7, 1), change(0, None), NoHugePage);
        journal.restore(TARGET, before);
        assert_eq!(journal.flag(TARGET, 0), None);
        assert!(journal.to_put_back(HugePage).is_empty());
    }

    #[test]
    fn what_was_mapped_anew_is_forgotten() {
        let mut journal = FlagJournal::default();
        for n in 0..3 {
            journal.note(TARGET, holder(7, 1), change(n, None), NoHugePage);
        }
        let mapping = |start: u64, end: u64, flags: &str| smaps::Vma {
            mapping: maps::Mapping {
                range: AddrRange::new(start << 21, end << 21),
                perms: maps::Perms::default(),
                inode: 0,
                name: String::new(),
            },
            counts: smaps::Counts::default(),
            vm_flags: flags.to_owned(),
        };
        // The second was unmapped and mapped again, the third is gone.
        let now = [mapping(0, 1, "rd nh"), mapping(1, 2, "rd wr")];
        journal.forget_lost(TARGET, &Flagged::of(&now));
        let flags = [0, 1, 2].map(|n| journal.flag(TARGET, n << 21));
        assert_eq!(flags, [Some(NoHugePage), None, None]);
        journal.forget_lost(TargetId(9), &Flagged::of(&now));
    }

    #[test]
    fn leftovers_name_the_range_and_the_process() {
        let mut journal = FlagJournal::default();
        let us = holder(7, 1);
        journal.note(TARGET, us, change(1, None), NoHugePage);
        journal.note(TARGET, us, change(2, None), NoHugePage);
        let left = journal.leftovers();
        assert_eq!(left.len(), 1);
        assert!(
            left[0].what.contains("MADV_NOHUGEPAGE") && left[0].what.contains("4.00 MiB"),
            "{left:?}"
        );
        assert_eq!(left[0].within, Some(us.owner));
    }
}
