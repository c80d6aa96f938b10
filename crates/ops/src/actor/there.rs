//! How much of each of many runs is in memory, and how much of that others map too: at a small part of what it costs to
//! do something to it.
//!
//! What is there is counted for many runs at once: in copies of the page tables, where the tracker reads them, or by the
//! kernel (`PAGEMAP_SCAN`). Before Linux 6.7 runs of up to 128 KiB are counted in the pagemap, and larger ones estimated
//! from a 64th of each.
//!
//! Which of it others map is told by the pagemap alone, which costs half as much as the action. So it is estimated, from a
//! 1024th of what lies near each other in one mapping, up to 32 MiB; where that says some of it and not all, each run is
//! asked by itself. Up to 2 MiB in all of a process, both are counted in the pagemap.

use std::io;
use std::path::Path;

use thermo_core::{Addr, AddrRange, Bytes, PAGE_SIZE};
use thermo_sys::pagemap::Pagemap;

use super::borders::Borders;
use super::survey::{Survey, survey, survey_each};
use super::{Plan, Task, spans};
use crate::pte::PteTracker;

/// So much in all of a process is counted in the pagemap.
const LITTLE: Bytes = Bytes::mib(2);
/// Where nobody counts, so much is read page by page; of more a 64th is looked at, and no less than this.
const READ: Bytes = Bytes::kib(128);
/// Runs no farther apart are counted in one go, and are neighbours when it is asked who maps them.
const GAP: Bytes = Bytes::mib(1);
/// How much of neighbouring runs together is asked as one who maps them, and how much of that is looked at.
const STRETCH: Bytes = Bytes::mib(32);
const LOOK_AT_STRETCH: Bytes = Bytes::kib(32);
/// How much of a run is, where its neighbours do not agree.
const LOOK_AT_RUN: Bytes = Bytes::kib(64);

/// What is there of what each of `plans` keeps, which was advised: all of it is mapped.
pub(super) fn there(
    root: &Path,
    task: &Task<'_>,
    plans: &[Plan],
    pte: Option<&mut PteTracker>,
) -> Vec<Survey> {
    let pieces = Pieces::of(plans);
    if spans::sum(&pieces.ranges) <= LITTLE {
        let found = survey_each(task.pagemap, &pieces.ranges);
        return pieces.of_plans(plans.len(), &found);
    }
    let present = match pte.and_then(|pte| in_tables(task, &pieces.ranges, pte)) {
        Some(present) => present,
        None => counted(task.pagemap, &pieces.ranges),
    };
    let mut of_plans = vec![Some(Bytes::ZERO); plans.len()];
    for (owner, present) in pieces.owners.iter().zip(present) {
        let sum = &mut of_plans[*owner];
        *sum = sum.zip(present).map(|(sum, present)| sum + present);
    }
    let mut borders = Borders::of(root, task.process.pid);
    let of_one = |start, end| borders.is_of_one(start, end);
    look(task.pagemap, plans, &of_plans, of_one)
}

/// All that plans keep, ascending, and the plan each range is of.
pub(super) struct Pieces {
    pub ranges: Vec<AddrRange>,
    owners: Vec<usize>,
}

impl Pieces {
    pub(super) fn of(plans: &[Plan]) -> Self {
        let mut all: Vec<(AddrRange, usize)> = Vec::with_capacity(plans.len());
        for (nth, plan) in plans.iter().enumerate() {
            all.extend(plan.kept.iter().map(|range| (*range, nth)));
        }
        if !all.is_sorted() {
            all.sort_unstable();
        }
        let (ranges, owners) = all.into_iter().unzip();
        Self { ranges, owners }
    }

    /// What was found in each range, summed up for each of the plans.
    pub(super) fn of_plans(&self, nr_plans: usize, found: &[Survey]) -> Vec<Survey> {
        let mut sums = vec![Survey::default(); nr_plans];
        for (owner, found) in self.owners.iter().zip(found) {
            sums[*owner].add(*found);
        }
        sums
    }
}

/// What is there of each range, from page tables; nothing when they cannot be read any more.
fn in_tables(task: &Task<'_>, ranges: &[AddrRange], pte: &mut PteTracker) -> Option<Vec<Option<Bytes>>> {
    let present = pte.present(task.process, ranges).ok()?;
    // A number that was given to another process in the meantime: what was read is not the target's.
    task.process
        .is_alive()
        .then(|| present.into_iter().map(Some).collect())
}

/// What is there of each range, where the kernel counts, or where it is little.
fn counted(pagemap: &Pagemap, ranges: &[AddrRange]) -> Vec<Option<Bytes>> {
    match absent(pagemap, ranges) {
        Ok(absent) => {
            let there = |range: &AddrRange| Some(range.len() - spans::overlap(range, &absent));
            ranges.iter().map(there).collect()
        }
        Err(_) => read(pagemap, ranges),
    }
}

/// What of `ranges` is not there, where the kernel tells.
fn absent(pagemap: &Pagemap, ranges: &[AddrRange]) -> io::Result<Vec<AddrRange>> {
    let mut absent = Vec::new();
    let mut rest = ranges;
    while !rest.is_empty() {
        let (span, nr) = spans::near(rest, GAP, Bytes(u64::MAX));
        pagemap.absent(span, &mut absent)?;
        rest = &rest[nr..];
    }
    Ok(absent)
}

/// What is there of each range that is little, read page by page.
fn read(pagemap: &Pagemap, ranges: &[AddrRange]) -> Vec<Option<Bytes>> {
    let little = |range: &&AddrRange| range.len() <= READ;
    let read: Vec<AddrRange> = ranges.iter().filter(little).copied().collect();
    let mut found = survey_each(pagemap, &read).into_iter();
    let of_range = |range| {
        Some(range)
            .filter(little)
            .and_then(|_| Some(found.next()?.present))
    };
    ranges.iter().map(of_range).collect()
}

/// Puts together what was counted, `present`, and what is looked at.
fn look(
    pagemap: &Pagemap,
    plans: &[Plan],
    present: &[Option<Bytes>],
    of_one: impl FnMut(Addr, Addr) -> bool,
) -> Vec<Survey> {
    let mut found = Vec::with_capacity(plans.len());
    let mut kept = Vec::new();
    for stretch in stretches(plans, present, of_one) {
        let counted = &present[found.len()..][..stretch.len()];
        kept.clear();
        kept.extend(stretch.iter().flat_map(|plan| &plan.kept).copied());
        let all = spans::sum(&kept);
        if counted.contains(&None) {
            let most = Bytes(all.0 / 64).max(READ);
            found.push(survey(pagemap, &kept, most));
            continue;
        }
        let most = Bytes(LOOK_AT_STRETCH.0 * all.0.div_ceil(STRETCH.0));
        let looked = survey(pagemap, &kept, most);
        let agree = looked.shared == Bytes::ZERO || looked.shared == looked.present;
        let each = stretch.iter().zip(counted).map(|(plan, counted)| {
            let looked = if agree || stretch.len() == 1 {
                looked
            } else {
                survey(pagemap, &plan.kept, LOOK_AT_RUN)
            };
            known_to_be_there(looked, counted.unwrap_or_default())
        });
        found.extend(each);
    }
    found
}

/// The plans that are looked at as one: neighbours of which is known what is there, and that lie in one mapping, as
/// `of_one` tells of what is between two addresses.
fn stretches<'a>(
    plans: &'a [Plan],
    present: &'a [Option<Bytes>],
    mut of_one: impl FnMut(Addr, Addr) -> bool,
) -> impl Iterator<Item = &'a [Plan]> {
    let (mut nth, mut so_far) = (0, Bytes::ZERO);
    plans.chunk_by(move |a, b| {
        so_far += spans::sum(&a.kept);
        let known = present[nth].and(present[nth + 1]).is_some();
        nth += 1;
        let (a, together) = (spans::ends(&a.kept), so_far + spans::sum(&b.kept) <= STRETCH);
        let near = a.zip(spans::ends(&b.kept)).is_some_and(|(a, b)| {
            let is_near = a.end <= b.start && b.start <= a.end + GAP;
            is_near && of_one(a.start, b.end)
        });
        let together = known && together && near;
        if !together {
            so_far = Bytes::ZERO;
        }
        together
    })
}

/// The estimate, put right by how much is known to be there.
fn known_to_be_there(looked: Survey, present: Bytes) -> Survey {
    let shared = u128::from(present.0) * u128::from(looked.shared.0) / u128::from(looked.present.0.max(1));
    let shared = u64::try_from(shared).unwrap_or(u64::MAX) / PAGE_SIZE * PAGE_SIZE;
    Survey {
        present,
        shared: Bytes(shared).min(present),
    }
}

#[cfg(test)]
mod tests {
    use thermo_core::ops::Applied;

    use super::*;

    fn plan(from: u64, to: u64) -> Plan {
        let range = AddrRange::new(from << 20, to << 20);
        Plan {
            applied: Applied::default(),
            kept: Some(range)
                .filter(|range| !range.is_empty())
                .into_iter()
                .collect(),
        }
    }

    #[test]
    fn neighbours_are_looked_at_together_up_to_a_size() {
        let plans = [
            plan(0, 2),
            plan(2, 4),
            plan(5, 32),
            plan(32, 34),
            plan(40, 41),
            plan(41, 41),
            plan(41, 42),
            plan(42, 90),
            plan(90, 91),
        ];
        let lens = |present: &[Option<Bytes>]| -> Vec<usize> {
            stretches(&plans, present, |_, _| true)
                .map(<[Plan]>::len)
                .collect()
        };
        let mut present = [Some(Bytes::ZERO); 9];
        assert_eq!(lens(&present), [3, 1, 1, 1, 1, 1, 1]);
        present[1] = None;
        assert_eq!(lens(&present), [1, 1, 2, 1, 1, 1, 1, 1]);
        assert_eq!(lens(&[None; 9]), [1; 9]);
        assert_eq!(stretches(&[], &[], |_, _| true).count(), 0);
        // The third begins another mapping.
        let border = Addr(5 << 20);
        let of_one = |start, end| end <= border || border <= start;
        present[1] = Some(Bytes::ZERO);
        let lens: Vec<usize> = stretches(&plans, &present, of_one).map(<[Plan]>::len).collect();
        assert_eq!(lens, [2, 2, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn pieces_come_in_order_and_go_back_to_their_plans() {
        let plans = [plan(4, 5), plan(0, 0), plan(1, 3)];
        let pieces = Pieces::of(&plans);
        assert_eq!(pieces.owners, [2, 0]);
        let found = |mib| Survey {
            present: Bytes::mib(mib),
            shared: Bytes::ZERO,
        };
        let of_plans = pieces.of_plans(3, &[found(2), found(1)]);
        assert_eq!(of_plans, [found(1), found(0), found(2)]);
    }

    #[test]
    fn without_the_kernels_count_little_ranges_are_read() {
        // Every second page is there.
        let map = crate::fake::pagemap(4096, |n| (n % 2) << 63);
        let kib = |from: u64, to: u64| AddrRange::new(from << 10, to << 10);
        let ranges = [
            kib(0, 8),
            kib(16, 144),
            kib(200, 2000),
            kib(4096, 4104),
            kib(1 << 20, (1 << 20) + 8),
        ];
        let half = |kib: u64| Some(Bytes::kib(kib / 2));
        assert_eq!(
            counted(&map, &ranges),
            [half(8), half(128), None, half(8), half(0)]
        );
    }

    #[test]
    fn what_is_shared_is_a_share_of_what_is_there() {
        let looked = Survey {
            present: Bytes::kib(64),
            shared: Bytes::kib(16),
        };
        let found = known_to_be_there(looked, Bytes::kib(40));
        assert_eq!((found.present, found.shared), (Bytes::kib(40), Bytes::kib(8)));
        assert_eq!(
            known_to_be_there(Survey::default(), Bytes::kib(8)).shared,
            Bytes::ZERO
        );
    }
}
