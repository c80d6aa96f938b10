//! Advice on the memory of many runs in as few calls as can be, where each run still has its own result.
//!
//! Neighbouring runs are advised as one range, which saves the kernel the search for where each begins: of runs of a
//! page each that is most of what a call costs. The kernel stops at the first range it refuses, and never says why. So a
//! range of several runs that it refuses is advised once more run by run, and a run that is refused by itself is advised
//! by itself, which goes around what is refused and learns the reasons (see `advise.rs` in this folder).

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use thermo_engine::ops::Skip;
use thermo_kernel::process_madvise::Advice;
use thermo_units::{AddrRange, Bytes};

use super::advise::call_bytes;
use super::{Actor, Plan, Task, spans};
use crate::process::Process;
use crate::pte;

/// Neighbours are joined up to so much: it is advised twice when one of them is refused.
const JOINED: Bytes = Bytes::mib(64);

/// A range of the kernel's call, and the plans that have a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Joined {
    range: AddrRange,
    first: usize,
    last: usize,
}

/// Advice on what plans keep.
pub(super) struct Together<'a> {
    pub process: &'a Process,
    pub advice: Advice,
    /// Asked between calls, with the bytes advised so far: a reason to leave the rest alone.
    pub stop: &'a mut dyn FnMut(Bytes) -> Option<Skip>,
}

impl Together<'_> {
    /// Advises all of `plans`. Returns for each whether the kernel took it whole; of one that it did not take, parts may
    /// have been advised.
    pub(super) fn advise(&mut self, plans: &[Plan]) -> Vec<bool> {
        let joined = join(plans);
        let ranges: Vec<AddrRange> = joined.iter().map(|joined| joined.range).collect();
        let mut whole = vec![true; plans.len()];
        let (mut next, mut so_far) = (0, Bytes::ZERO);
        while next < ranges.len() {
            let call = &ranges[next..][..self.call_len(&ranges[next..])];
            let mut refused = Vec::new();
            let goes_on = (self.stop)(so_far).is_none() && self.give(call, &mut |n| refused.push(next + n));
            if !goes_on {
                let left = joined[next..]
                    .iter()
                    .flat_map(|joined| joined.first..=joined.last);
                left.for_each(|plan| whole[plan] = false);
                break;
            }
            for refused in refused {
                self.one_by_one(&joined[refused], plans, &mut whole);
            }
            so_far += spans::sum(call);
            next += call.len();
        }
        whole
    }

    /// Advises the parts of `joined`, which the kernel did not take as one, by themselves.
    fn one_by_one(&self, joined: &Joined, plans: &[Plan], whole: &mut [bool]) {
        if joined.first == joined.last {
            whole[joined.first] = false;
            return;
        }
        let parts = (joined.first..=joined.last).flat_map(|nth| {
            let kept = plans[nth].kept.iter();
            kept.filter_map(move |range| Some((range.intersection(&joined.range)?, nth)))
        });
        let (parts, owners): (Vec<AddrRange>, Vec<usize>) = parts.unzip();
        let goes_on = self.give(&parts, &mut |n| whole[owners[n]] = false);
        if !goes_on {
            whole[joined.first..=joined.last].fill(false);
        }
    }

    fn give(&self, ranges: &[AddrRange], refused: &mut impl FnMut(usize)) -> bool {
        pte::advise(self.process.pidfd.as_fd(), ranges, self.advice, refused)
    }

    fn call_len(&self, ranges: &[AddrRange]) -> usize {
        let most = call_bytes(self.advice);
        let mut sum = Bytes::ZERO;
        let fits = ranges[..pte::call_len(ranges)].iter().take_while(|range| {
            sum += range.len();
            sum <= most
        });
        fits.count().max(1)
    }
}

impl Actor {
    /// Advises what `plans` keep; then they keep what was advised, count it, and tell why not the rest.
    pub(super) fn advise_plans(&self, task: &Task<'_>, advice: Advice, plans: &mut [Plan]) {
        let mut stop = |_| self.cancel.load(Ordering::Relaxed).then_some(Skip::Cancelled);
        let whole = Together {
            process: task.process,
            advice,
            stop: &mut stop,
        }
        .advise(plans);
        for (plan, whole) in plans.iter_mut().zip(whole) {
            if whole {
                plan.applied.applied += spans::sum(&plan.kept);
            } else {
                let done = self.advise(task.process, advice, &plan.kept, &mut plan.applied);
                plan.kept = done.into();
            }
        }
    }
}

/// What `plans` keep, in their order, neighbours joined and what is large cut.
fn join(plans: &[Plan]) -> Vec<Joined> {
    let mut all: Vec<Joined> = Vec::new();
    for (nth, plan) in plans.iter().enumerate() {
        for range in spans::pieces(&plan.kept, JOINED) {
            match all.last_mut() {
                Some(last) if last.range.end == range.start && last.range.len() + range.len() <= JOINED => {
                    last.range.end = range.end;
                    last.last = nth;
                }
                _ => all.push(Joined {
                    range,
                    first: nth,
                    last: nth,
                }),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use thermo_engine::ops::Applied;

    use super::*;

    fn plans(kept: &[&[(u64, u64)]]) -> Vec<Plan> {
        let mib = |(from, to): &(u64, u64)| AddrRange::new(from << 20, to << 20);
        let plan = |ranges: &&[(u64, u64)]| Plan {
            applied: Applied::default(),
            kept: ranges.iter().map(mib).collect(),
        };
        kept.iter().map(plan).collect()
    }

    #[test]
    fn neighbours_are_joined_and_what_is_large_is_cut() {
        let joined = |kept: &[&[(u64, u64)]]| -> Vec<((u64, u64), usize, usize)> {
            let all = join(&plans(kept));
            let mib = |range: AddrRange| (range.start.0 >> 20, range.end.0 >> 20);
            all.iter()
                .map(|one| (mib(one.range), one.first, one.last))
                .collect()
        };
        assert_eq!(
            joined(&[&[(0, 1)], &[(1, 3)], &[(4, 5)]]),
            [((0, 3), 0, 1), ((4, 5), 2, 2)]
        );
        // Only what is given one after the other; the order is kept.
        assert_eq!(joined(&[&[(1, 3)], &[(0, 1)]]), [((1, 3), 0, 0), ((0, 1), 1, 1)]);
        // One that keeps nothing is in no call.
        assert_eq!(joined(&[&[(0, 1)], &[], &[(1, 2)]]), [((0, 2), 0, 2)]);
        assert_eq!(
            joined(&[&[(0, 1), (2, 3)], &[(3, 4)]]),
            [((0, 1), 0, 0), ((2, 4), 0, 1)]
        );
        assert_eq!(
            joined(&[&[(0, 40)], &[(40, 150)]]),
            [((0, 40), 0, 0), ((40, 104), 1, 1), ((104, 150), 1, 1)]
        );
        assert_eq!(joined(&[]), []);
    }
}
