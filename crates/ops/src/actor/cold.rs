//! Moving memory down the LRU lists: so cheap for a page (a tenth of a microsecond) that what goes with it decides.
//!
//! The runs of a process are advised together, in calls of up to 1024 ranges; a run that is not taken whole is
//! advised again by itself, which tells why.
//!
//! What was there is counted in copies of the page tables, where the tracker reads them. Which of it is mapped by
//! others too, and without page tables also what was there, is told by the pagemap, which costs as much as the
//! action: above 2 MiB in all of a process it is estimated, for each run from its own pages (for small runs side by
//! side, from those of 4 MiB of them), in pieces of 16 to 64 KiB evenly spread. They are 2 MiB together, or one a run
//! where that is more; without page tables eight a run, and each run by itself.

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use thermo_core::ops::{Applied, Skip};
use thermo_core::{AddrRange, Bytes, PAGE_SIZE};
use thermo_sys::process_madvise::{Advice, MAX_BYTES};

use super::survey::{Survey, survey};
use super::{Actor, Plan, Task, spans};
use crate::process::Process;
use crate::pte::{PteTracker, call_len, clear};

/// How much of what a request is about in a process is looked at in the pagemap.
const LOOK_AT: Bytes = Bytes::mib(2);
/// Neighbouring runs of so much together are asked as one who maps them.
const STRETCH: Bytes = Bytes::mib(4);
/// How much at least of a run when nothing else tells what is there.
const LOOK_AT_UNTOLD: Bytes = Bytes::kib(128);

impl Actor {
    /// Moves down what `plans` keep of the runs of one process.
    pub(super) fn cold(
        &self,
        task: &Task<'_>,
        mut plans: Vec<Plan>,
        pte: Option<&mut PteTracker>,
    ) -> Vec<Applied> {
        let whole = self.advised_together(task.process, &plans);
        for (plan, _) in plans.iter_mut().zip(whole).filter(|(_, whole)| !whole) {
            plan.kept = self.advise(task.process, Advice::Cold, &plan.kept, &mut plan.applied);
        }
        let all = plans.iter().map(|plan| spans::sum(&plan.kept)).sum();
        let present = pte.and_then(|pte| present(task.process, &plans, pte));
        let mut looked = Vec::with_capacity(plans.len());
        for stretch in stretches(&plans, present.is_some() && all > LOOK_AT) {
            let kept: Vec<AddrRange> = stretch.iter().flat_map(|plan| plan.kept.clone()).collect();
            let share = share_of_looks(spans::sum(&kept), all);
            let least = present.as_ref().map_or(LOOK_AT_UNTOLD, |_| Bytes::ZERO);
            let found = survey(task.pagemap, &kept, share.max(least));
            looked.extend(stretch.iter().map(|_| found));
        }
        let book = |(nth, plan): (usize, Plan)| {
            let Plan { mut applied, kept } = plan;
            let advised = spans::sum(&kept);
            let there = match &present {
                Some(present) => known_to_be_there(looked[nth], present[nth]),
                None => looked[nth],
            };
            applied.skip(Skip::NotPresent, advised.saturating_sub(there.present));
            applied.skip(Skip::Shared, there.shared);
            applied.applied = there.present.saturating_sub(there.shared);
            applied
        };
        plans.into_iter().enumerate().map(book).collect()
    }

    /// Advises all of `plans` in as few calls as can be. Returns for each whether the kernel took it whole.
    fn advised_together(&self, process: &Process, plans: &[Plan]) -> Vec<bool> {
        let mut whole = vec![true; plans.len()];
        let (mut pieces, mut owners) = (Vec::new(), Vec::new());
        for (nth, plan) in plans.iter().enumerate() {
            pieces.extend(spans::cut(&plan.kept, MAX_BYTES));
            owners.resize(pieces.len(), nth);
        }
        let mut next = 0;
        while next < pieces.len() {
            let call = &pieces[next..][..call_len(&pieces[next..])];
            let owners_of_call = &owners[next..];
            let goes_on = !self.cancel.load(Ordering::Relaxed)
                && clear(process.pidfd.as_fd(), call, &mut |n| {
                    whole[owners_of_call[n]] = false;
                });
            if !goes_on {
                owners_of_call.iter().for_each(|owner| whole[*owner] = false);
                break;
            }
            next += call.len();
        }
        whole
    }
}

/// The plans that are looked at as one: neighbours of up to [`STRETCH`] together, where `joined`.
fn stretches(plans: &[Plan], joined: bool) -> impl Iterator<Item = &[Plan]> {
    let mut so_far = Bytes::ZERO;
    plans.chunk_by(move |a, b| {
        so_far += spans::sum(&a.kept);
        let ends = a.kept.last().map(|range| range.end);
        let begins = b.kept.first().map(|range| range.start);
        let together = joined && ends == begins && so_far + spans::sum(&b.kept) <= STRETCH;
        if !together {
            so_far = Bytes::ZERO;
        }
        together
    })
}

/// How much of a run, of `advised` bytes, is looked at when it is one of some that are `all` together.
fn share_of_looks(advised: Bytes, all: Bytes) -> Bytes {
    let share = u128::from(LOOK_AT.0) * u128::from(advised.0) / u128::from(all.max(LOOK_AT).0.max(1));
    if all <= LOOK_AT {
        advised
    } else {
        Bytes(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

/// What is in memory of each plan, from page tables; `None` when they cannot be read any more.
fn present(process: &Process, plans: &[Plan], pte: &mut PteTracker) -> Option<Vec<Bytes>> {
    let kept = |(nth, plan): (usize, &Plan)| plan.kept.clone().into_iter().map(move |range| (range, nth));
    let mut ranges: Vec<(AddrRange, usize)> = plans.iter().enumerate().flat_map(kept).collect();
    ranges.sort_unstable();
    let (ranges, owners): (Vec<AddrRange>, Vec<usize>) = ranges.into_iter().unzip();
    let found = pte.present(process, &ranges).ok()?;
    let mut present = vec![Bytes::ZERO; plans.len()];
    owners
        .into_iter()
        .zip(found)
        .for_each(|(owner, bytes)| present[owner] += bytes);
    // A number that was given to another process in the meantime: what was read is not the target's.
    process.is_alive().then_some(present)
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
    use super::*;

    #[test]
    fn little_memory_is_looked_at_whole_and_much_in_shares() {
        for (advised, all, looks) in [
            (Bytes::mib(1), Bytes::mib(2), Bytes::mib(1)),
            (Bytes::mib(1), Bytes::mib(4), Bytes::kib(512)),
            (Bytes::gib(4), Bytes::gib(8), Bytes::mib(1)),
            (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO),
        ] {
            assert_eq!(share_of_looks(advised, all), looks, "{advised} of {all}");
        }
    }

    #[test]
    fn neighbours_are_looked_at_together_up_to_a_size() {
        let plan = |from: u64, to: u64| Plan {
            applied: Applied::default(),
            kept: vec![AddrRange::new(from << 20, to << 20)],
        };
        let plans = [
            plan(0, 2),
            plan(2, 4),
            plan(4, 5),
            plan(6, 7),
            plan(7, 90),
            plan(90, 91),
        ];
        let lens = |joined| -> Vec<usize> { stretches(&plans, joined).map(<[Plan]>::len).collect() };
        assert_eq!(lens(true), [2, 1, 1, 1, 1]);
        assert_eq!(lens(false), [1; 6]);
        assert_eq!(stretches(&[], true).count(), 0);
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
