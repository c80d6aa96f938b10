//! What flags we set where, and what was there before.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_core::{AddrRange, TargetId};
use thermo_sys::leftovers::{Leftover, Owner};

use super::spans;
use crate::inject::{Call, HugeFlag};

/// A unit to be changed, and the flag it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub unit: AddrRange,
    pub before: Option<HugeFlag>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unit {
    len: u64,
    before: Option<HugeFlag>,
    now: HugeFlag,
}

/// The units of one target by their begin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pages {
    pid: u32,
    units: BTreeMap<u64, Unit>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Book(BTreeMap<TargetId, Pages>);

impl Book {
    /// The flag we set last on the unit at `start`.
    pub(super) fn flag(&self, target: TargetId, start: u64) -> Option<HugeFlag> {
        Some(self.0.get(&target)?.units.get(&start)?.now)
    }

    /// Notes that `change` leads to `now`. What was before the first change stays what was before.
    pub(super) fn note(&mut self, target: TargetId, pid: u32, change: Change, now: HugeFlag) {
        let pages = self.0.entry(target).or_default();
        pages.pid = pid;
        let unit = pages.units.entry(change.unit.start.0).or_insert(Unit {
            len: change.unit.len().0,
            before: change.before,
            now,
        });
        unit.now = now;
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

    /// The calls that put everything back, where no flag at all is the same as `none`.
    pub(super) fn to_put_back(&self, none: HugeFlag) -> Vec<(u32, Call)> {
        let mut calls = Vec::new();
        for pages in self.0.values() {
            for flag in [HugeFlag::HugePage, HugeFlag::NoHugePage] {
                let is_due = |unit: &Unit| unit.before.unwrap_or(none) == flag && unit.now != flag;
                calls.extend(
                    pages
                        .ranges(is_due)
                        .into_iter()
                        .map(|range| (pages.pid, Call { range, flag })),
                );
            }
        }
        calls
    }

    /// The sentences for whoever finds them when we are dead.
    pub(super) fn leftovers(&self, root: &Path) -> Vec<Leftover> {
        let mut left = Vec::new();
        for pages in self.0.values() {
            // What has ended keeps nothing.
            let Some(within) = Owner::of(root, pages.pid) else {
                continue;
            };
            for flag in [HugeFlag::HugePage, HugeFlag::NoHugePage] {
                for range in pages.ranges(|unit| unit.now == flag && unit.before != Some(flag)) {
                    let what = format!(
                        "{} stays set on {range} ({}) of process {}, until that process ends",
                        flag.name(),
                        range.len(),
                        pages.pid
                    );
                    left.push(Leftover {
                        within: Some(within),
                        what,
                    });
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
            spans::push(&mut ranges, AddrRange::new(*start, start + unit.len));
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HugeFlag::{HugePage, NoHugePage};

    const TARGET: TargetId = TargetId(3);

    fn change(n: u64, before: Option<HugeFlag>) -> Change {
        Change {
            unit: AddrRange::new(n << 21, (n + 1) << 21),
            before,
        }
    }

    #[test]
    fn what_was_first_is_put_back() {
        let mut book = Book::default();
        for n in 0..4 {
            book.note(TARGET, 7, change(n, (n >= 2).then_some(HugePage)), NoHugePage);
        }
        // Unit 1 turned hot again, which is how it was meant to be where the mode is `always`.
        book.note(TARGET, 7, change(1, Some(NoHugePage)), HugePage);
        assert_eq!(book.flag(TARGET, 1 << 21), Some(HugePage));
        let call = |start: u64, end: u64, flag| {
            (
                7,
                Call {
                    range: AddrRange::new(start << 21, end << 21),
                    flag,
                },
            )
        };
        assert_eq!(
            book.to_put_back(HugePage),
            [call(0, 1, HugePage), call(2, 4, HugePage)]
        );
        assert_eq!(
            book.to_put_back(NoHugePage),
            [call(2, 4, HugePage), call(1, 2, NoHugePage)]
        );
    }

    #[test]
    fn a_call_that_was_not_made_is_forgotten() {
        let mut book = Book::default();
        let before = book.clone_of(TARGET);
        book.note(TARGET, 7, change(0, None), NoHugePage);
        book.restore(TARGET, before);
        assert_eq!(book.flag(TARGET, 0), None);
        assert!(book.to_put_back(HugePage).is_empty());
    }

    #[test]
    fn leftovers_name_the_range_and_the_process() {
        let mut book = Book::default();
        let us = std::process::id();
        book.note(TARGET, us, change(1, None), NoHugePage);
        book.note(TARGET, us, change(2, None), NoHugePage);
        let left = book.leftovers(Path::new("/"));
        assert_eq!(left.len(), 1);
        assert!(
            left[0].what.contains("MADV_NOHUGEPAGE") && left[0].what.contains("4.00 MiB"),
            "{left:?}"
        );
        assert!(left[0].within.is_some_and(|owner| owner.pid == us));
    }
}
