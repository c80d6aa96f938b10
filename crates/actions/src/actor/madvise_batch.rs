//! Advice on what plans keep, in as few calls as can be, where each plan still has its own result.
//!
//! Neighbouring ranges of plans are advised as one, which saves the kernel the search for where each begins: of runs of a
//! page each that is most of what a call costs. What the kernel refuses is cut into parts, and all parts of all refused
//! ranges are advised in a second batch: at the borders of plans; at the borders of mappings, past holes and locked memory;
//! or into huge pages. What is refused then is counted by its reason.

use std::cell::OnceCell;
use std::os::fd::AsFd as _;
use std::path::Path;

use thermo_engine::ops::Skip;
use thermo_kernel::madvise_batch::{Outcome, madvise_batch, parts_in};
use thermo_kernel::maps::{self, Mapping};
use thermo_kernel::process_madvise::{Advice, MAX_BYTES};
use thermo_kernel::status;
use thermo_targets::Process;
use thermo_units::{AddrRange, Bytes};

use super::plan::RangePlan;
use super::spans;
use super::units::HUGE_PAGE;

/// How much one call works on: for the slow kinds of advice about a tenth of a second's worth, so that a stop is
/// heeded soon.
pub(super) const fn call_bytes(advice: Advice) -> Bytes {
    match advice {
        Advice::PageOut | Advice::Collapse => Bytes::mib(64),
        Advice::Cold | Advice::WillNeed => MAX_BYTES,
    }
}

/// The largest range of a call: it is advised twice when a part of it is refused. For every range in which huge pages are
/// to be made, the kernel first has all processors give up pages that they hold back (`lru_add_drain_all`), which waits for
/// each that is busy. So a few huge pages go in one range.
const fn range_bytes(advice: Advice) -> Bytes {
    match advice {
        Advice::Collapse => Bytes::mib(16),
        _ => Bytes::mib(64),
    }
}

/// A range of the first batch, and the plans that have a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Joined {
    range: AddrRange,
    first: usize,
    last: usize,
}

/// What one plan has of a range of the first batch, or a part of that.
#[derive(Debug, Clone, Copy)]
struct Part {
    plan: usize,
    range: AddrRange,
    outcome: Outcome,
    /// Whether it is to be advised again, in the second batch.
    again: bool,
    /// Whether it is known to lie in a mapping whose memory could be locked.
    is_lockable: bool,
}

/// One kind of advice to one process.
pub(super) struct Advisor<'a> {
    pub root: &'a Path,
    pub process: &'a Process,
    pub advice: Advice,
    /// Asked between calls, with the bytes advised so far: a reason to leave the rest alone.
    pub stop: &'a mut dyn FnMut(Bytes) -> Option<Skip>,
}

impl Advisor<'_> {
    /// Advises what `plans` keep. Then they keep what was advised, count it, and say why not the rest.
    pub(super) fn advise(mut self, plans: &mut [RangePlan]) {
        let joined = join(plans, range_bytes(self.advice));
        let ranges: Vec<AddrRange> = joined.iter().map(|joined| joined.range).collect();
        let mut why = None;
        let outcomes = self.batch(&ranges, Bytes::ZERO, &mut why);
        let mut is_whole = vec![true; plans.len()];
        let mut so_far = Bytes::ZERO;
        for (joined, outcome) in joined.iter().zip(&outcomes) {
            match outcome {
                Outcome::Done => so_far += joined.range.len(),
                _ => is_whole[joined.first..=joined.last].fill(false),
            }
        }
        for (plan, _) in plans.iter_mut().zip(&is_whole).filter(|(_, is_whole)| **is_whole) {
            plan.applied.applied += spans::sum(&plan.kept);
        }
        if is_whole.contains(&false) {
            let mut parts = self.parts(&joined, &outcomes, plans, &is_whole);
            let again = |part: &&mut Part| part.again;
            let ranges: Vec<AddrRange> = parts.iter_mut().filter(again).map(|part| part.range).collect();
            let outcomes = self.batch(&ranges, so_far, &mut why);
            for (part, outcome) in parts.iter_mut().filter(again).zip(outcomes) {
                part.outcome = outcome;
            }
            self.book(plans, &is_whole, &parts, why.unwrap_or(Skip::Cancelled));
        }
    }

    /// One batch, after `before` bytes were advised. `why` is set to the reason when it is stopped.
    fn batch(&mut self, ranges: &[AddrRange], before: Bytes, why: &mut Option<Skip>) -> Vec<Outcome> {
        let mut stop = |so_far| {
            let objection = (self.stop)(before + so_far);
            *why = objection.or(*why);
            objection.is_some()
        };
        let (pidfd, most) = (self.process.pidfd.as_fd(), call_bytes(self.advice));
        madvise_batch(pidfd, ranges, self.advice, most, &mut stop)
    }

    /// What plans that were not advised whole have of each range of the first batch, cut where it is advised again.
    fn parts(
        &self,
        joined: &[Joined],
        outcomes: &[Outcome],
        plans: &[RangePlan],
        is_whole: &[bool],
    ) -> Vec<Part> {
        let mut parts = Vec::new();
        let mappings = OnceCell::new();
        let mappings = || {
            let read = mappings.get_or_init(|| maps::read(self.root, self.process.pid).ok());
            read.as_deref()
        };
        for (joined, outcome) in joined.iter().zip(outcomes) {
            for plan in (joined.first..=joined.last).filter(|nth| !is_whole[*nth]) {
                let kept = plans[plan].kept.iter();
                for range in kept.filter_map(|kept| kept.intersection(&joined.range)) {
                    let part = Part {
                        plan,
                        range,
                        outcome: *outcome,
                        again: false,
                        is_lockable: false,
                    };
                    self.cut(part, range == joined.range, &mappings, &mut parts);
                }
            }
        }
        parts
    }

    /// Adds `part`, or what it is cut into to be advised again. `is_all`: no other plan has a part of the range.
    fn cut<'m>(
        &self,
        part: Part,
        is_all: bool,
        mappings: &dyn Fn() -> Option<&'m [Mapping]>,
        parts: &mut Vec<Part>,
    ) {
        let again = |range| Part {
            range,
            again: true,
            ..part
        };
        match part.outcome {
            Outcome::Refused(_) if self.advice == Advice::Collapse && part.range.len() > HUGE_PAGE => {
                parts.extend(spans::pieces(&[part.range], HUGE_PAGE).map(again));
            }
            Outcome::Refused(libc::EINVAL | libc::ENOMEM) if self.advice != Advice::Collapse => {
                let Some(mappings) = mappings() else {
                    let outcome = Outcome::Refused(libc::ESRCH);
                    return parts.push(Part { outcome, ..part });
                };
                let mut mapped = Vec::new();
                for (mapping, range) in parts_in(part.range, mappings, |mapping| mapping.range) {
                    mapped.push(range);
                    let is_lockable = !mapping.is_device();
                    parts.push(Part {
                        is_lockable,
                        ..again(range)
                    });
                }
                let outcome = Outcome::Refused(libc::ENOMEM);
                let holes = spans::without(&[part.range], &mapped).into_iter();
                parts.extend(holes.map(|range| Part {
                    range,
                    outcome,
                    ..part
                }));
            }
            // Without what other plans have of the range it may be taken.
            Outcome::Refused(_) if !part.outcome.is_for_all() && !is_all => parts.push(again(part.range)),
            _ => parts.push(part),
        }
    }

    /// Has the plans that were not advised whole keep those of their `parts` that were, and counts all. `why` is the
    /// reason for what was not tried.
    fn book(&self, plans: &mut [RangePlan], is_whole: &[bool], parts: &[Part], why: Skip) {
        let mut done: Vec<Vec<AddrRange>> = vec![Vec::new(); plans.len()];
        for part in parts {
            let applied = &mut plans[part.plan].applied;
            match part.outcome {
                Outcome::Done => {
                    applied.applied += part.range.len();
                    part.range.join_onto(&mut done[part.plan]);
                }
                Outcome::Refused(errno) => applied.skip(self.reason(errno, *part), part.range.len()),
                Outcome::NotTried => applied.skip(why, part.range.len()),
            }
        }
        let kept = plans.iter_mut().zip(done).zip(is_whole);
        for ((plan, done), _) in kept.filter(|(_, is_whole)| !**is_whole) {
            plan.kept = done.into();
        }
    }

    fn reason(&self, errno: i32, part: Part) -> Skip {
        match errno {
            libc::ESRCH => Skip::TargetGone,
            // The mapping went away after we read of it.
            libc::ENOMEM if self.advice != Advice::Collapse => Skip::NotPresent,
            libc::EINVAL if part.is_lockable && self.has_locked() => Skip::Locked,
            libc::EINVAL => Skip::Unadvisable,
            _ => Skip::Refused,
        }
    }

    /// True when the process has locked memory at all: which of its mappings are is told only by smaps, which
    /// costs more than the answer is worth.
    fn has_locked(&self) -> bool {
        status::read(self.root, self.process.pid).is_ok_and(|status| status.vm_lck > Bytes::ZERO)
    }
}

/// What `plans` keep, in their order, neighbours joined up to `most` bytes and what is larger cut.
fn join(plans: &[RangePlan], most: Bytes) -> Vec<Joined> {
    let mut all: Vec<Joined> = Vec::new();
    for (nth, plan) in plans.iter().enumerate() {
        for range in spans::pieces(&plan.kept, most) {
            match all.last_mut() {
                Some(last) if last.range.end == range.start && last.range.len() + range.len() <= most => {
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

    fn plans(kept: &[&[(u64, u64)]]) -> Vec<RangePlan> {
        let mib = |(from, to): &(u64, u64)| AddrRange::new(from << 20, to << 20);
        let plan = |ranges: &&[(u64, u64)]| RangePlan {
            applied: Applied::default(),
            kept: ranges.iter().map(mib).collect(),
        };
        kept.iter().map(plan).collect()
    }

    #[test]
    fn neighbours_are_joined_and_what_is_large_is_cut() {
        let joined = |kept: &[&[(u64, u64)]]| -> Vec<((u64, u64), usize, usize)> {
            let all = join(&plans(kept), Bytes::mib(64));
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
