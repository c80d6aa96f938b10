//! The CPU budget for monitoring: a share of one CPU. After each piece of work, monitoring pauses until the
//! average cost is back within the share.

use std::fmt;

use crate::attrs::Attrs;
use thermo_units::Nanos;

/// A share of one CPU, in millionths. 10,000 is one percent. More than 1,000,000 is more than one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuShare(pub u32);

impl CpuShare {
    /// The time of which `cost` is this share.
    #[must_use]
    pub fn time_for(self, cost: Nanos) -> Nanos {
        let time = u128::from(cost.0) * 1_000_000 / u128::from(self.0.max(1));
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// The CPU time that this share allows in `span`.
    #[must_use]
    pub fn of(self, span: Nanos) -> Nanos {
        let part = u128::from(span.0) * u128::from(self.0) / 1_000_000;
        Nanos(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// The share in percent.
    #[must_use]
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

/// A monitoring method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// DAMON's method: one access check per region and sampling interval. The cost grows with the number of
    /// regions.
    Sampling,
    /// Checks every page, pass after pass. The cost grows with resident memory.
    #[default]
    Scan,
}

impl Method {
    /// Name in flags, recordings and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sampling => "sampling",
            Self::Scan => "scan",
        }
    }
}

/// Restricts the methods that a budget may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MethodPolicy {
    /// Scan if the operations support it, otherwise sampling.
    #[default]
    Auto,
    /// Sampling, at intervals that fit the budget.
    Sampling,
    /// Scan. Falls back to sampling, with a warning, if the operations cannot scan.
    Scan,
    /// Sampling at the requested intervals. Monitoring pauses if these cost more than the budget.
    FixedIntervals,
}

/// The method and attributes that keep a context within its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The budget.
    pub share: CpuShare,
    /// The method.
    pub method: Method,
    /// Intervals and numbers of regions.
    pub attrs: Attrs,
}

impl fmt::Display for Plan {
    /// One sentence: `scan every page, a snapshot every 1.00 s, at most 1000 regions (budget 1 % of a CPU)`.
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

/// Accounts for the CPU time spent. Each cost adds a debt that passes with time; no work may start while in
/// debt.
///
/// Up to six seconds of unused time are saved. A budget below 10 % of a CPU is raised to 10 % for the first
/// three seconds, or until [`Budget::end_start`]: the first scan clears accessed bits that may be years old,
/// so it costs far more than later scans, and the user waits for it.
#[derive(Debug, Clone)]
pub struct Budget {
    share: CpuShare,
    /// End of the start phase, in which at least [`START_SHARE`] may be spent.
    start_until: Nanos,
    /// When the debt ends. Does not include saved time.
    free_at: Nanos,
    /// Time that was not used before `free_at`.
    saved: Nanos,
}

/// Maximum of saved time. Spent at once, it is a tenth of a minute's budget.
const MAX_SAVED: Nanos = Nanos::secs(6);
/// Minimum share during the start phase.
const START_SHARE: CpuShare = CpuShare(100_000);
/// Maximum length of the start phase.
const START_TIME: Nanos = Nanos::secs(3);

impl Budget {
    /// An account that begins at `now` without debt.
    #[must_use]
    pub fn new(share: CpuShare, now: Nanos) -> Self {
        Self {
            share,
            start_until: now.saturating_add(START_TIME),
            free_at: now,
            saved: Nanos::ZERO,
        }
    }

    /// The share of one CPU.
    #[must_use]
    pub const fn share(&self) -> CpuShare {
        self.share
    }

    /// Changes the share. Debt and saved time stay.
    pub const fn set_share(&mut self, share: CpuShare) {
        self.share = share;
    }

    /// Charges `cost` at `now`.
    pub fn spend(&mut self, now: Nanos, cost: Nanos) {
        let share = match self.is_starting(now) {
            true => self.share.max(START_SHARE),
            false => self.share,
        };
        self.saved = self.saved_at(now);
        let time = share.time_for(cost);
        let from_saved = time.min(self.saved);
        self.saved = self.saved.saturating_sub(from_saved);
        let debt_start = self.free_at.max(now);
        self.free_at = debt_start.saturating_add(time.saturating_sub(from_saved));
    }

    /// True during the start phase, in which a larger share may be spent.
    #[must_use]
    pub fn is_starting(&self, now: Nanos) -> bool {
        now < self.start_until
    }

    /// Ends the start phase: all memory has been scanned.
    pub fn end_start(&mut self) {
        self.start_until = Nanos::ZERO;
    }

    /// When work may start again. Not in the future if work may start now.
    #[must_use]
    pub const fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// The saved time at `now`.
    fn saved_at(&self, now: Nanos) -> Nanos {
        self.saved
            .saturating_add(now.saturating_sub(self.free_at))
            .min(MAX_SAVED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_PERCENT: CpuShare = CpuShare(10_000);

    #[test]
    fn share_converts_cost_to_time_and_back() {
        assert_eq!(ONE_PERCENT.time_for(Nanos::millis(5)), Nanos::millis(500));
        assert_eq!(ONE_PERCENT.of(Nanos::secs(1)), Nanos::millis(10));
    }

    #[test]
    fn budget_keeps_share_for_varying_costs() {
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
    fn start_phase_ends_when_memory_is_scanned() {
        let mut budget = Budget::new(ONE_PERCENT, Nanos::ZERO);
        budget.spend(Nanos::ZERO, Nanos::millis(5));
        assert_eq!(budget.free_at(), Nanos::millis(50));
        budget.end_start();
        budget.spend(Nanos::millis(50), Nanos::millis(5));
        assert_eq!(budget.free_at(), Nanos::millis(550));
    }

    #[test]
    fn budget_allows_start_share_and_limits_saved_time() {
        let mut budget = Budget::new(ONE_PERCENT, Nanos::secs(100));
        budget.spend(Nanos::secs(100), Nanos::millis(50));
        assert_eq!(budget.free_at(), Nanos::millis(100_500));
        // After an hour only six seconds are saved: 80 ms are worth eight seconds, so two seconds of debt
        // remain.
        budget.spend(Nanos::secs(3600), Nanos::millis(80));
        assert_eq!(budget.free_at(), Nanos::secs(3602));
        // A budget above the start share applies from the beginning.
        let mut large = Budget::new(CpuShare(500_000), Nanos::ZERO);
        large.spend(Nanos::ZERO, Nanos::millis(50));
        assert_eq!(large.free_at(), Nanos::millis(100));
    }
}
