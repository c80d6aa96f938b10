//! A budget chooses: which way to look, how often, with how many regions; anew whenever what it costs shows
//! that another choice fits better.

use super::Context;
use crate::attrs::Attrs;
use crate::budget::{Budget, CpuShare, Looks, Way};
use crate::ops::Operations;
use crate::sink::{Event, Sink};
use crate::sweep::MAX_NR_ACCESSES;
use crate::units::Nanos;

/// Sweeps are not made more often: what changes faster than this is hot anyway.
const SHORTEST_ROUND: Nanos = Nanos::secs(1);
/// A picture older than this is not worth its exactness: sampling sees more.
const LONGEST_ROUND: Nanos = Nanos::secs(20);
/// How long samples are taken before it is tried again whether sweeps fit by now.
const RETRY: Nanos = Nanos::secs(300);
/// Looks in one aggregation when sampling, DAMON's default.
const SAMPLES: u64 = 20;
const FASTEST_SAMPLE: Nanos = Nanos::millis(5);
const SLOWEST_SAMPLE: Nanos = Nanos::secs(1);
/// The sampling interval one would like; regions are given up for it, down to [`FEWEST_REGIONS`].
const GOOD_SAMPLE: Nanos = Nanos::millis(100);
const FEWEST_REGIONS: usize = 100;
/// What a look costs before any was measured.
const GUESSED_LOOK: Nanos = Nanos::micros(4);

/// Chooses, and keeps the account.
#[derive(Debug)]
pub(super) struct Chooser {
    looks: Looks,
    budget: Budget,
    /// What the user asked for; only the numbers of regions and the update interval count.
    asked: Attrs,
    /// All that was spent on looking so far.
    total: Nanos,
    /// The same when the aggregation that is running began.
    total_at_start: Nanos,
    /// When sweeping was given up.
    gave_up_sweeps: Option<Nanos>,
}

impl Chooser {
    pub(super) const fn share(&self) -> CpuShare {
        self.budget.share()
    }

    /// Until when nothing may be spent, if that lies ahead.
    pub(super) fn resting_at(&self, now: Nanos) -> Option<Nanos> {
        Some(self.budget.free_at()).filter(|free_at| *free_at > now)
    }
}

impl Context {
    /// Makes it stay within `share` of one CPU, choosing among `looks`. Before the first step.
    #[must_use]
    pub fn with_budget(mut self, share: CpuShare, looks: Looks) -> Self {
        let budget = Budget::new(share, Nanos::ZERO);
        let asked = self.attrs;
        let (total, total_at_start) = (Nanos::ZERO, Nanos::ZERO);
        self.chooser = Some(Chooser {
            looks,
            budget,
            asked,
            total,
            total_at_start,
            gave_up_sweeps: None,
        });
        self
    }

    /// Tells what looking has cost so far, all in all. After every step, where a budget is to be kept.
    pub fn spent(&mut self, now: Nanos, total: Nanos) {
        if let Some(chooser) = &mut self.chooser {
            chooser.budget.spend(now, total.saturating_sub(chooser.total));
            chooser.total = total;
        }
    }

    pub(super) fn choose_first(&mut self, now: Nanos, ops: &dyn Operations, sink: &mut dyn Sink) {
        let Some(chooser) = &mut self.chooser else { return };
        chooser.budget = Budget::new(chooser.budget.share(), now);
        let sweep = match chooser.looks {
            Looks::Auto => ops.can_sweep(),
            Looks::Sample => false,
            Looks::Sweep => {
                let can = ops.can_sweep();
                if !can {
                    let text =
                        "every page cannot be looked at here: looking at a page of each region instead";
                    sink.on(&Event::Warning { now, text });
                }
                can
            }
        };
        if sweep {
            let attrs = sweep_attrs(&chooser.asked, SHORTEST_ROUND);
            self.adopt(now, Way::Sweep, attrs, sink);
        } else {
            let attrs = sample_attrs(chooser.share(), &chooser.asked, GUESSED_LOOK);
            self.adopt(now, Way::Sample, attrs, sink);
        }
    }

    /// Looks at what the aggregation that just ended cost, and whether another choice fits better.
    pub(super) fn choose_after_aggregation(&mut self, now: Nanos, ops: &dyn Operations, sink: &mut dyn Sink) {
        let nr_regions = self.nr_regions();
        let Some(chooser) = &mut self.chooser else { return };
        let cost = chooser.total.saturating_sub(chooser.total_at_start);
        chooser.total_at_start = chooser.total;
        let next = match self.way {
            Way::Sweep => chooser.after_round(now, cost, &self.attrs),
            Way::Sample => chooser.after_samples(now, cost, &self.attrs, nr_regions, ops.can_sweep()),
        };
        if let Some((way, attrs)) = next {
            self.adopt(now, way, attrs, sink);
        }
    }

    /// Samples from now on if the round that is under way shows already that sweeps are too slow.
    pub(super) fn give_up_slow_round(&mut self, began: Nanos, now: Nanos, sink: &mut dyn Sink) {
        let Some(chooser) = &mut self.chooser else { return };
        if chooser.looks == Looks::Auto && now.saturating_sub(began) > LONGEST_ROUND {
            let (way, attrs) = chooser.give_up_sweeps(now);
            self.adopt(now, way, attrs, sink);
        }
    }

    fn adopt(&mut self, now: Nanos, way: Way, attrs: Attrs, sink: &mut dyn Sink) {
        self.change_to(way, attrs);
        self.aggr_start = Some(now);
        if let Some(plan) = self.plan() {
            sink.on(&Event::Planned { now, plan: &plan });
        }
    }
}

impl Chooser {
    fn give_up_sweeps(&mut self, now: Nanos) -> (Way, Attrs) {
        self.gave_up_sweeps = Some(now);
        // What the round that is given up cost says nothing about samples.
        self.total_at_start = self.total;
        (Way::Sample, sample_attrs(self.share(), &self.asked, GUESSED_LOOK))
    }

    fn after_round(&mut self, now: Nanos, cost: Nanos, attrs: &Attrs) -> Option<(Way, Attrs)> {
        let needed = self.share().time_for(cost).max(SHORTEST_ROUND);
        if needed > LONGEST_ROUND && self.looks == Looks::Auto {
            return Some(self.give_up_sweeps(now));
        }
        // Longer at once, shorter only when it would be by much: costs vary from round to round.
        let (longer, shorter) = (needed.0 > attrs.aggr.0, needed.0.saturating_mul(2) < attrs.aggr.0);
        (longer || shorter).then(|| {
            (
                Way::Sweep,
                sweep_attrs(&self.asked, Nanos((needed.0 / 5).saturating_mul(6))),
            )
        })
    }

    fn after_samples(
        &mut self,
        now: Nanos,
        cost: Nanos,
        attrs: &Attrs,
        nr_regions: usize,
        can_sweep: bool,
    ) -> Option<(Way, Attrs)> {
        let retry = self
            .gave_up_sweeps
            .is_some_and(|then| now >= then.saturating_add(RETRY));
        if retry && can_sweep && self.looks == Looks::Auto {
            self.gave_up_sweeps = None;
            return Some((Way::Sweep, sweep_attrs(&self.asked, SHORTEST_ROUND)));
        }
        let looks = u64::from(attrs.max_nr_accesses()) * nr_regions.max(1) as u64;
        let next = sample_attrs(self.share(), &self.asked, Nanos((cost.0 / looks).max(1)));
        let differs = |a: u64, b: u64| a.abs_diff(b) * 3 > b;
        let regions = |attrs: &Attrs| attrs.max_nr_regions as u64;
        let changed = differs(next.sample.0, attrs.sample.0) || differs(regions(&next), regions(attrs));
        changed.then_some((Way::Sample, next))
    }
}

/// Attributes of sweeps each `interval`: one round counts like a whole aggregation of samples.
fn sweep_attrs(asked: &Attrs, interval: Nanos) -> Attrs {
    Attrs {
        sample: Nanos(interval.0 / u64::from(MAX_NR_ACCESSES)),
        aggr: interval,
        ..*asked
    }
}

/// Attributes of sampling that stay within `share` when one look at one region costs `look`.
fn sample_attrs(share: CpuShare, asked: &Attrs, look: Nanos) -> Attrs {
    let affordable = usize::try_from(share.of(GOOD_SAMPLE).0 / look.0.max(1)).unwrap_or(usize::MAX);
    let least = FEWEST_REGIONS.max(asked.min_nr_regions).min(asked.max_nr_regions);
    let max_nr_regions = affordable.clamp(least, asked.max_nr_regions);
    let sample = share
        .time_for(look * max_nr_regions as u64)
        .clamp(FASTEST_SAMPLE, SLOWEST_SAMPLE);
    Attrs {
        sample,
        aggr: sample * SAMPLES,
        max_nr_regions,
        ..*asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_PERCENT: CpuShare = CpuShare(10_000);

    #[test]
    fn samples_are_planned_to_fit() {
        for look_us in [1, 3, 10, 100] {
            let attrs = sample_attrs(ONE_PERCENT, &Attrs::default(), Nanos::micros(look_us));
            assert_eq!(attrs.check(), Ok(()));
            let cost_per_second = look_us * attrs.max_nr_regions as u64 * 1_000_000_000 / attrs.sample.0;
            assert!(
                cost_per_second <= 10_100,
                "{cost_per_second} us of 10,000 at {look_us} us: {attrs:?}"
            );
        }
    }

    #[test]
    fn few_regions_asked_for_stay_few() {
        let asked = Attrs {
            max_nr_regions: 20,
            ..Attrs::default()
        };
        assert_eq!(
            sample_attrs(ONE_PERCENT, &asked, Nanos::micros(3)).max_nr_regions,
            20
        );
    }

    #[test]
    fn a_sweep_counts_like_an_aggregation() {
        let attrs = sweep_attrs(&Attrs::default(), Nanos::secs(7));
        assert_eq!(attrs.max_nr_accesses(), MAX_NR_ACCESSES);
    }
}
