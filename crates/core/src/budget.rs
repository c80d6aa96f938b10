//! The overhead the user sets: a share of one CPU, kept by paying back what was spent before looking again.

use std::fmt;

use crate::attrs::Attrs;
use crate::units::Nanos;

/// A share of one CPU, in millionths. 10,000 is one percent; more than 1,000,000 is more than one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuShare(pub u32);

impl CpuShare {
    /// How long one must rest for `cost` to be this share of the whole time.
    #[must_use]
    pub fn time_for(self, cost: Nanos) -> Nanos {
        let time = u128::from(cost.0) * 1_000_000 / u128::from(self.0.max(1));
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// How much CPU time this share of `span` is.
    #[must_use]
    pub fn of(self, span: Nanos) -> Nanos {
        let part = u128::from(span.0) * u128::from(self.0) / 1_000_000;
        Nanos(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// The share that `cost` is of `span`.
    #[must_use]
    pub fn of_time(cost: Nanos, span: Nanos) -> Self {
        let part = u128::from(cost.0) * 1_000_000 / u128::from(span.0.max(1));
        Self(u32::try_from(part).unwrap_or(u32::MAX))
    }

    /// A half of it.
    #[must_use]
    pub const fn half(self) -> Self {
        Self(self.0 / 2)
    }

    /// In percent, for people.
    #[must_use]
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

/// How accesses are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// DAMON's: one access check per region. The cost follows the number of regions.
    Sampling,
    /// Every page, pass after pass. The cost follows resident memory.
    #[default]
    Scan,
}

impl Method {
    /// Its name in flags, recordings and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sampling => "sampling",
            Self::Scan => "scan",
        }
    }
}

/// How memory is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// One page a region, often: cost follows the number of regions.
    Sample,
    /// Every page, seldom: cost follows resident memory.
    Sweep,
}

/// Which ways may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Looks {
    /// Sweeps of those targets where they fit the budget and do no harm, samples of the others.
    #[default]
    Auto,
    /// Samples.
    Sample,
    /// Sweeps, however seldom.
    Sweep,
    /// Samples at the intervals that were asked for; it rests where they cost more than the budget.
    Asked,
}

/// How a context looks, chosen to stay within a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The budget.
    pub share: CpuShare,
    /// The way.
    pub way: Way,
    /// Its intervals and regions.
    pub attrs: Attrs,
    /// Where samples are taken and some targets are swept nevertheless: the rounds over those.
    pub rounds: Option<PlannedRounds>,
    /// Targets that are not swept because they grow or come back while memory is short ([`TargetLayout::is_delicate`]).
    ///
    /// [`TargetLayout::is_delicate`]: crate::ops::TargetLayout::is_delicate
    pub nr_delicate: usize,
}

/// Rounds over some targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRounds {
    /// Over how many.
    pub nr_targets: usize,
    /// How many targets there are.
    pub of: usize,
    /// From the beginning of one to that of the next.
    pub each: Nanos,
}

impl fmt::Display for Plan {
    /// A sentence: `look at every page each 1.00 s (budget 1 % of a CPU)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attrs {
            sample,
            aggr,
            max_nr_regions,
            ..
        } = self.attrs;
        if let Some(PlannedRounds { nr_targets, of, each }) = self.rounds {
            write!(
                f,
                "look at every page of {nr_targets} of {of} targets each {each}; of the others, "
            )?;
        }
        match self.way {
            Way::Sweep => write!(f, "look at every page each {aggr}")?,
            Way::Sample => write!(
                f,
                "look at a page of each region every {sample}, sum up every {aggr}"
            )?,
        }
        write!(
            f,
            ", at most {max_nr_regions} regions (budget {} % of a CPU)",
            self.share.percent()
        )?;
        match self.nr_delicate {
            0 => Ok(()),
            1 => f.write_str(
                "; not at every page of a target that grows, or comes back from swap, while memory is short",
            ),
            many => write!(
                f,
                "; not at every page of {many} targets that grow, or come back from swap, while memory is short"
            ),
        }
    }
}

/// Keeps account of a share. What is spent becomes a debt that time pays back; nothing may be spent while in debt.
///
/// Time that was not used is saved up to six seconds, and so much is there at the beginning: the first look at memory
/// takes off the marks of all its past, which costs many times what later ones do, and is what everybody waits for.
#[derive(Debug, Clone)]
pub struct Budget {
    share: CpuShare,
    /// When everything spent so far will be paid back, saved time not counted.
    free_at: Nanos,
    /// Time that was not used before `free_at`.
    saved: Nanos,
}

/// Unused time that may be saved up. Spent at once it is a tenth of what a minute allows.
const ADVANCE: Nanos = Nanos::secs(6);

impl Budget {
    /// An account that begins now, owing nothing, with all that can be saved up.
    #[must_use]
    pub const fn new(share: CpuShare, now: Nanos) -> Self {
        Self {
            share,
            free_at: now,
            saved: ADVANCE,
        }
    }

    /// The share.
    #[must_use]
    pub const fn share(&self) -> CpuShare {
        self.share
    }

    /// Books `cost` at `now`.
    pub fn spend(&mut self, now: Nanos, cost: Nanos) {
        self.saved = self.saved_at(now);
        let time = self.share.time_for(cost);
        let of_saved = time.min(self.saved);
        self.saved = self.saved.saturating_sub(of_saved);
        let from = self.free_at.max(now);
        self.free_at = from.saturating_add(time.saturating_sub(of_saved));
    }

    /// From when on something may be spent again; a moment in the past when it may now.
    #[must_use]
    pub const fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// The time that would have been saved up at `now`.
    #[must_use]
    pub fn saved_at(&self, now: Nanos) -> Nanos {
        self.saved
            .saturating_add(now.saturating_sub(self.free_at))
            .min(ADVANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_PERCENT: CpuShare = CpuShare(10_000);

    #[test]
    fn a_hundredth_rests_a_hundred_times_as_long() {
        assert_eq!(ONE_PERCENT.time_for(Nanos::millis(5)), Nanos::millis(500));
        assert_eq!(ONE_PERCENT.of(Nanos::secs(1)), Nanos::millis(10));
    }

    #[test]
    fn over_a_minute_the_share_is_kept_whatever_the_pieces_cost() {
        let mut budget = Budget::new(ONE_PERCENT, Nanos(0));
        let (mut now, mut spent) = (Nanos(0), Nanos(0));
        let mut piece = 1;
        while now < Nanos::secs(60) {
            let cost = Nanos::micros(100 * (1 + piece * 7 % 90));
            spent += cost;
            now += cost;
            budget.spend(now, cost);
            now = now.max(budget.free_at());
            piece += 1;
        }
        // With what there was at the beginning.
        let permille = spent.0 * 1000 / now.0;
        assert!((10..=11).contains(&permille), "{permille} thousandths");
    }

    #[test]
    fn six_seconds_are_there_at_the_beginning_and_after_a_pause() {
        let mut budget = Budget::new(ONE_PERCENT, Nanos::secs(100));
        budget.spend(Nanos::secs(100), Nanos::millis(50));
        assert_eq!(budget.free_at(), Nanos::secs(100));
        assert_eq!(budget.saved_at(Nanos::secs(100)), Nanos::secs(1));
        budget.spend(Nanos::secs(100), Nanos::millis(20));
        assert_eq!(budget.free_at(), Nanos::secs(101));
        assert_eq!(budget.saved_at(Nanos::secs(101)), Nanos::ZERO);
        // An hour later no more than that: 80 ms cost eight seconds.
        budget.spend(Nanos::secs(3600), Nanos::millis(80));
        assert_eq!(budget.free_at(), Nanos::secs(3602));
    }
}
