//! Advises the kept memory of plans in few system calls, with a separate result for each plan.
//!
//! Adjacent ranges of plans are merged. That saves the kernel the lookup of each start address, which is most
//! of the cost of a call for ranges of one page. Ranges that the kernel refuses are split and advised again
//! in a second batch. They are split at the borders of plans, at the borders of mappings (to skip holes and
//! locked memory), or into huge pages. Parts that are refused again are counted by reason.

use std::cell::OnceCell;
use std::path::Path;

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::ProcError;
use thermo_kernel::madvise_batch::{AdviceOutcome, madvise_batch, split_by_mapping};
use thermo_kernel::maps::{self, Mapping};
use thermo_kernel::process_madvise::{Advice, MAX_BYTES};
use thermo_kernel::refusal::{Call, Cause, Refusal};
use thermo_kernel::smaps::{self, Vma};
use thermo_kernel::status;
use thermo_targets::Process;
use thermo_units::{AddrRange, Bytes};

use super::dry_run::DryKernel;
use super::plan::RangePlan;
use super::range_ops;
use super::refused::skip_refused;
use super::units::HUGE_PAGE;

/// Maximum bytes per call. Slow kinds of advice get about 0.1 s of work, so that a cancel takes effect soon.
pub(super) const fn call_bytes(advice: Advice) -> Bytes {
    match advice {
        Advice::PageOut | Advice::Collapse => Bytes::mib(64),
        Advice::Cold | Advice::WillNeed => MAX_BYTES,
    }
}

/// Maximum bytes per range. A range is advised twice when a part of it is refused. For each range to
/// collapse, the kernel first drains the per-CPU LRU caches of all CPUs (`lru_add_drain_all`), which waits
/// for busy CPUs. So several huge pages share a range.
const fn range_bytes(advice: Advice) -> Bytes {
    match advice {
        Advice::Collapse => Bytes::mib(16),
        _ => Bytes::mib(64),
    }
}

/// A range of the first batch, and the first and last plan with a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MergedRange {
    range: AddrRange,
    first: usize,
    last: usize,
}

/// One plan's share of a range of the first batch, or a part of the share.
#[derive(Debug, Clone, Copy)]
struct Part {
    plan: usize,
    range: AddrRange,
    outcome: AdviceOutcome,
    /// Advise the part again in the second batch.
    again: bool,
    /// The part is known to lie in a mapping whose memory can be locked.
    is_lockable: bool,
}

/// One kind of advice to one process.
pub(super) struct Advisor<'a> {
    pub root: &'a Path,
    pub process: &'a Process,
    pub advice: Advice,
    /// Ask what the kernel would answer, and advise nothing.
    pub dry_run: bool,
}

impl Advisor<'_> {
    /// Advises the kept memory of `plans`. Afterwards the plans keep what was advised, and count both this
    /// and the skipped bytes. `stop` is called before each call of the kernel with the bytes advised so far;
    /// it returns a reason to skip the rest.
    pub(super) fn advise(&self, plans: &mut [RangePlan], stop: &mut dyn FnMut(Bytes) -> Option<Skip>) {
        let dry = DryKernel::new(self.root, self.process);
        let merged = merge_ranges(plans, range_bytes(self.advice));
        let ranges: Vec<AddrRange> = merged.iter().map(|merged| merged.range).collect();
        // The reason if a batch is stopped, and the bytes advised by the first batch.
        let (mut why, mut before) = (None, Bytes::ZERO);
        let mut stop = |so_far| {
            let reason = stop(so_far);
            why = reason.or(why);
            reason.is_some()
        };
        let outcomes = self.batch(&dry, &ranges, &mut stop);
        let mut is_whole = vec![true; plans.len()];
        for (merged, outcome) in merged.iter().zip(&outcomes) {
            match outcome {
                AdviceOutcome::Done => before += merged.range.len(),
                _ => is_whole[merged.first..=merged.last].fill(false),
            }
        }
        for (plan, _) in plans.iter_mut().zip(&is_whole).filter(|(_, is_whole)| **is_whole) {
            plan.applied.applied += range_ops::sum(&plan.kept);
        }
        if is_whole.contains(&false) {
            let mut parts = self.parts(&merged, &outcomes, plans, &is_whole);
            let again = |part: &&mut Part| part.again;
            let ranges: Vec<AddrRange> = parts.iter_mut().filter(again).map(|part| part.range).collect();
            let mut stop = |so_far| stop(before + so_far);
            let outcomes = self.batch(&dry, &ranges, &mut stop);
            for (part, outcome) in parts.iter_mut().filter(again).zip(outcomes) {
                part.outcome = outcome;
            }
            self.count_parts(plans, &is_whole, &parts, why.unwrap_or(Skip::Cancelled));
        }
    }

    fn batch(
        &self,
        dry: &DryKernel<'_>,
        ranges: &[AddrRange],
        stop: &mut dyn FnMut(Bytes) -> bool,
    ) -> Vec<AdviceOutcome> {
        if self.dry_run {
            return dry.madvise_batch(ranges, self.advice, stop);
        }
        madvise_batch(
            &self.process.pidfd,
            ranges,
            self.advice,
            call_bytes(self.advice),
            stop,
        )
    }

    /// The parts of all plans that were not fully advised, split where they are advised again.
    fn parts(
        &self,
        merged: &[MergedRange],
        outcomes: &[AdviceOutcome],
        plans: &[RangePlan],
        is_whole: &[bool],
    ) -> Vec<Part> {
        let mut parts = Vec::new();
        let mappings = OnceCell::new();
        let mappings = || {
            let read = mappings.get_or_init(|| maps::read(self.root, self.process.pid));
            read.as_deref().map_err(ProcError::errno)
        };
        for (merged, outcome) in merged.iter().zip(outcomes) {
            for plan in (merged.first..=merged.last).filter(|nth| !is_whole[*nth]) {
                let kept = plans[plan].kept.iter();
                for range in kept.filter_map(|kept| kept.intersection(&merged.range)) {
                    let part = Part {
                        plan,
                        range,
                        outcome: *outcome,
                        again: false,
                        is_lockable: false,
                    };
                    self.split_part(part, range == merged.range, &mappings, &mut parts);
                }
            }
        }
        parts
    }

    /// Adds `part`, or the pieces of it to advise again. `is_all`: no other plan has a part of the range.
    fn split_part<'m>(
        &self,
        part: Part,
        is_all: bool,
        mappings: &dyn Fn() -> Result<&'m [Mapping], i32>,
        parts: &mut Vec<Part>,
    ) {
        let again = |range| Part {
            range,
            again: true,
            ..part
        };
        match part.outcome {
            AdviceOutcome::Refused(_)
                if self.advice == Advice::Collapse
                    && !part.outcome.is_process_wide(self.advice)
                    && part.range.len() > HUGE_PAGE =>
            {
                parts.extend(range_ops::pieces(&[part.range], HUGE_PAGE).map(again));
            }
            AdviceOutcome::Refused(0 | libc::EINVAL | libc::ENOMEM) if self.advice != Advice::Collapse => {
                let mappings = match mappings() {
                    Ok(mappings) => mappings,
                    Err(errno) => {
                        let outcome = AdviceOutcome::Refused(errno);
                        return parts.push(Part { outcome, ..part });
                    }
                };
                let mut mapped = Vec::new();
                for (mapping, range) in split_by_mapping(part.range, mappings, |mapping| mapping.range) {
                    mapped.push(range);
                    let is_lockable = !mapping.is_device();
                    parts.push(Part {
                        is_lockable,
                        ..again(range)
                    });
                }
                let outcome = AdviceOutcome::Refused(libc::ENOMEM);
                let holes = range_ops::without(&[part.range], &mapped).into_iter();
                parts.extend(holes.map(|range| Part {
                    range,
                    outcome,
                    ..part
                }));
            }
            // The kernel may accept the part without the parts of other plans.
            AdviceOutcome::Refused(_) if !part.outcome.is_process_wide(self.advice) && !is_all => {
                parts.push(again(part.range))
            }
            _ => parts.push(part),
        }
    }

    /// Makes plans that were not fully advised keep their advised `parts`, and counts all parts. `why` is the
    /// reason for parts that were not tried.
    fn count_parts(&self, plans: &mut [RangePlan], is_whole: &[bool], parts: &[Part], why: Skip) {
        let mut done: Vec<Vec<AddrRange>> = vec![Vec::new(); plans.len()];
        let flags = OnceCell::new();
        let flags = || {
            let read = flags.get_or_init(|| smaps::read(self.root, self.process.pid).ok());
            read.as_deref().unwrap_or_default()
        };
        for part in parts {
            let applied = &mut plans[part.plan].applied;
            match part.outcome {
                AdviceOutcome::Done => {
                    applied.applied += part.range.len();
                    part.range.coalesce_into(&mut done[part.plan]);
                }
                AdviceOutcome::Refused(errno) => self.skip_refused(errno, *part, &flags, applied),
                AdviceOutcome::NotTried => applied.skip(why, part.range.len()),
            }
        }
        let kept = plans.iter_mut().zip(done).zip(is_whole);
        for ((plan, done), _) in kept.filter(|(_, is_whole)| !**is_whole) {
            plan.kept = done.into();
        }
    }

    /// Counts a refused part. `flags` reads the mappings with their flags, which is expensive.
    fn skip_refused<'v>(&self, errno: i32, part: Part, flags: &dyn Fn() -> &'v [Vma], applied: &mut Applied) {
        let call = Call::Madvise(self.advice);
        let refusal = Refusal { call, errno };
        let may_be_uffd = matches!(refusal.cause(), Cause::Mapping | Cause::CgroupLimit);
        if self.advice == Advice::Collapse && may_be_uffd {
            let parts = split_by_mapping(part.range, flags(), |vma| vma.mapping.range);
            if parts.into_iter().any(|(vma, _)| vma.has_userfaultfd()) {
                return applied.skip(Skip::Userfaultfd, part.range.len());
            }
        }
        if refusal.cause() == Cause::Mapping && part.is_lockable && self.has_locked() {
            return applied.skip(Skip::Locked, part.range.len());
        }
        skip_refused(applied, refusal, part.range.len());
    }

    /// Whether the process has any locked memory. Only smaps shows which mappings are locked, and smaps is
    /// too expensive for that.
    fn has_locked(&self) -> bool {
        status::read(self.root, self.process.pid).is_ok_and(|status| status.vm_lck > Bytes::ZERO)
    }
}

/// The kept ranges of `plans` in order. Adjacent ranges are merged up to `max` bytes; larger ranges are
/// split.
fn merge_ranges(plans: &[RangePlan], max: Bytes) -> Vec<MergedRange> {
    let mut all: Vec<MergedRange> = Vec::new();
    for (nth, plan) in plans.iter().enumerate() {
        for range in range_ops::pieces(&plan.kept, max) {
            match all.last_mut() {
                Some(last) if last.range.end == range.start && last.range.len() + range.len() <= max => {
                    last.range.end = range.end;
                    last.last = nth;
                }
                _ => all.push(MergedRange {
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
    fn merge_ranges_joins_adjacent_and_splits_large() {
        let merged = |kept: &[&[(u64, u64)]]| -> Vec<((u64, u64), usize, usize)> {
            let all = merge_ranges(&plans(kept), Bytes::mib(64));
            let mib = |range: AddrRange| (range.start.0 >> 20, range.end.0 >> 20);
            all.iter()
                .map(|one| (mib(one.range), one.first, one.last))
                .collect()
        };
        assert_eq!(
            merged(&[&[(0, 1)], &[(1, 3)], &[(4, 5)]]),
            [((0, 3), 0, 1), ((4, 5), 2, 2)]
        );
        // Only consecutive ranges are merged; the order is kept.
        assert_eq!(merged(&[&[(1, 3)], &[(0, 1)]]), [((1, 3), 0, 0), ((0, 1), 1, 1)]);
        // A plan without kept memory has no range.
        assert_eq!(merged(&[&[(0, 1)], &[], &[(1, 2)]]), [((0, 2), 0, 2)]);
        assert_eq!(
            merged(&[&[(0, 1), (2, 3)], &[(3, 4)]]),
            [((0, 1), 0, 0), ((2, 4), 0, 1)]
        );
        assert_eq!(
            merged(&[&[(0, 40)], &[(40, 150)]]),
            [((0, 40), 0, 0), ((40, 104), 1, 1), ((104, 150), 1, 1)]
        );
        assert_eq!(merged(&[]), []);
    }
}
