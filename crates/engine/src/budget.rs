//! The overhead the user sets: a share of one CPU, kept by paying back what was spent before looking again.

use std::fmt;

use crate::attrs::Attrs;
use thermo_units::Nanos;

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

/// Which methods may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MethodPolicy {
    /// Scan, where that is possible.
    #[default]
    Auto,
    /// Sampling, at intervals that fit the budget.
    Sampling,
    /// Scan.
    Scan,
    /// Sampling at the intervals that were asked for; it rests where these cost more than the budget.
    ByHand,
}

/// How a context monitors to stay within a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The budget.
    pub share: CpuShare,
    /// The method.
    pub method: Method,
    /// Its intervals and numbers of regions.
    pub attrs: Attrs,
}

impl fmt::Display for Plan {
    /// A sentence: `scan every page, a snapshot every 1.00 s, at most 1000 regions (budget 1 % of a CPU)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attrs {
            sample,
            aggr,
            max_nr_regions,
            ..
        } = self.attrs;
        match self.method {
            Method::Scan => write!(f, "scan every page, a snapshot every {aggr}")?,
            Method::Sampling => write!(
                f,
                "check a page of each region every {sample}, a snapshot every {aggr}"
            )?,
        }
        write!(
            f,
            ", at most {max_nr_regions} regions (budget {} % of a CPU)",
            self.share.percent()
        )
    }
}

/// Keeps account of a share. What is spent becomes a debt that time pays back; nothing may be spent while in debt.
///
/// Time that was not used is saved up to six seconds. During the first three seconds 10 % of a CPU hold where the
/// budget is smaller, until [`Budget::end_start`]: the first scan clears accessed bits that may be years old, so it costs
/// many times what later scans do, and every user waits for it.
#[derive(Debug, Clone)]
pub struct Budget {
    share: CpuShare,
    /// Until when 10 % of a CPU hold.
    start_until: Nanos,
    /// When everything spent so far will be paid back, saved time not counted.
    free_at: Nanos,
    /// Time that was not used before `free_at`.
    saved: Nanos,
}

/// Unused time that may be saved up. Spent at once it is a tenth of what a minute allows.
const MOST_SAVED: Nanos = Nanos::secs(6);
/// What may be spent at the beginning, for so long.
const FIRST_SHARE: CpuShare = CpuShare(100_000);
const FIRST_TIME: Nanos = Nanos::secs(3);

impl Budget {
    /// An account that begins now, owing nothing.
    #[must_use]
    pub fn new(share: CpuShare, now: Nanos) -> Self {
        Self {
            share,
            start_until: now.saturating_add(FIRST_TIME),
            free_at: now,
            saved: Nanos::ZERO,
        }
    }

    /// The share.
    #[must_use]
    pub const fn share(&self) -> CpuShare {
        self.share
    }

    /// Books `cost` at `now`.
    pub fn spend(&mut self, now: Nanos, cost: Nanos) {
        let share = match self.is_starting(now) {
            true => self.share.max(FIRST_SHARE),
            false => self.share,
        };
        self.saved = self.saved_at(now);
        let time = share.time_for(cost);
        let of_saved = time.min(self.saved);
        self.saved = self.saved.saturating_sub(of_saved);
        let from = self.free_at.max(now);
        self.free_at = from.saturating_add(time.saturating_sub(of_saved));
    }

    /// Whether the larger share of the first seconds holds at `now`.
    #[must_use]
    pub fn is_starting(&self, now: Nanos) -> bool {
        now < self.start_until
    }

    /// Ends the larger share of the first seconds: all memory has been scanned.
    pub fn end_start(&mut self) {
        self.start_until = Nanos::ZERO;
    }

    /// From when on something may be spent again; a moment in the past when it may now.
    #[must_use]
    pub const fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// The time that would have been saved up at `now`.
    fn saved_at(&self, now: Nanos) -> Nanos {
        self.saved
            .saturating_add(now.saturating_sub(self.free_at))
            .min(MOST_SAVED)
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
    fn over_a_minute_the_share_is_kept_whatever_the_chunks_cost() {
        let mut budget = Budget::new(ONE_PERCENT, Nanos(0));
        let (mut now, mut spent) = (Nanos(0), Nanos(0));
        let (mut chunk, mut spent_at_start) = (1, Nanos::ZERO);
        while now < Nanos::secs(63) {
            let cost = Nanos::micros(100 * (1 + chunk * 7 % 90));
            spent += cost;
            if budget.is_starting(now) {
                spent_at_start = spent;
            }
            now += cost;
            budget.spend(now, cost);
            now = now.max(budget.free_at());
            chunk += 1;
        }
        let permille = (spent - spent_at_start).0 * 1000 / Nanos::secs(60).0;
        assert!((9..=10).contains(&permille), "{permille} thousandths");
        let most = Nanos::millis(310);
        assert!(
            spent_at_start <= most && spent_at_start >= Nanos::millis(280),
            "{spent_at_start}"
        );
    }

    #[test]
    fn share_of_the_start_ends_when_memory_is_scanned() {
        let mut budget = Budget::new(ONE_PERCENT, Nanos::ZERO);
        budget.spend(Nanos::ZERO, Nanos::millis(5));
        assert_eq!(budget.free_at(), Nanos::millis(50));
        budget.end_start();
        budget.spend(Nanos::millis(50), Nanos::millis(5));
        assert_eq!(budget.free_at(), Nanos::millis(550));
    }

    #[test]
    fn a_tenth_of_a_cpu_at_the_beginning_and_six_seconds_after_a_pause() {
        let mut budget = Budget::new(ONE_PERCENT, Nanos::secs(100));
        budget.spend(Nanos::secs(100), Nanos::millis(50));
        assert_eq!(budget.free_at(), Nanos::millis(100_500));
        // Later no more than six seconds' worth is saved: 80 ms cost eight seconds.
        budget.spend(Nanos::secs(3600), Nanos::millis(80));
        assert_eq!(budget.free_at(), Nanos::secs(3602));
        // A larger budget holds from the beginning.
        let mut large = Budget::new(CpuShare(500_000), Nanos::ZERO);
        large.spend(Nanos::ZERO, Nanos::millis(50));
        assert_eq!(large.free_at(), Nanos::millis(100));
    }
}
