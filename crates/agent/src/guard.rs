//! The guard of a policy that acts: bounds beyond which it is suspended, and the rule by which it resumes.
//!
//! A policy is suspended for the wait of its bounds. After that it resumes once all bounds hold. Each
//! suspension within an hour of the last doubles the wait, up to an hour.

use std::fmt;

use thermo_units::{Bytes, Nanos, Permille, SharePerMinute};

/// Below this many bytes a minute refaults are ignored: a few pages would suspend the policy.
const FEW_REFAULTS: Bytes = Bytes::mib(1);
/// The longest wait, and the time within which suspensions count as one series.
const HOUR: Nanos = Nanos::secs(3600);

/// The bounds of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// What may come back in a minute, as a share of the working set.
    pub max_refaults: SharePerMinute,
    /// The share of time in which some task may wait for memory (PSI, `some`, the last minute).
    pub max_stall: Permille,
    /// The share of swap that stays free.
    pub min_free_swap: Permille,
    /// The first wait.
    pub resume_after: Nanos,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_refaults: SharePerMinute(20_000),
            max_stall: Permille(100),
            min_free_swap: Permille(100),
            resume_after: Nanos::secs(600),
        }
    }
}

impl Bounds {
    /// A sentence for each bound.
    #[must_use]
    pub fn text(&self) -> Vec<String> {
        vec![
            format!("at most {} of the working set comes back", self.max_refaults),
            format!("tasks wait for memory at most {} of the time", self.max_stall),
            format!("at least {} of swap is free", self.min_free_swap),
        ]
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// Bytes that came back in the last minute.
    pub refaults: Bytes,
    /// The working set of the policy's targets.
    pub working_set: Bytes,
    /// The share of the last minute in which some task waited for memory; `None` where there is no PSI.
    pub stall: Option<Permille>,
    /// The share of swap that is free; `None` without swap.
    pub free_swap: Option<Permille>,
}

/// A bound that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    /// Too much came back.
    Refaults {
        /// Bytes in the last minute.
        bytes: Bytes,
        /// The working set.
        working_set: Bytes,
        /// The bound.
        max: SharePerMinute,
    },
    /// Tasks waited too long for memory.
    Stall {
        /// The share of the last minute.
        share: Permille,
        /// The bound.
        max: Permille,
    },
    /// Too little swap is free.
    Swap {
        /// The free share.
        free: Permille,
        /// The bound.
        min: Permille,
    },
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refaults {
                bytes,
                working_set,
                max,
            } => write!(
                f,
                "{bytes} came back in the last minute, of a working set of {working_set}; the bound is {max}"
            ),
            Self::Stall { share, max } => write!(
                f,
                "some task waited for memory {share} of the last minute; the bound is {max}"
            ),
            Self::Swap { free, min } => write!(f, "{free} of swap is free; the bound is {min}"),
        }
    }
}

impl Bounds {
    /// The first bound that does not hold.
    #[must_use]
    pub fn exceeded(&self, measured: &Measured) -> Option<Exceeded> {
        let Measured {
            refaults,
            working_set,
            stall,
            free_swap,
        } = *measured;
        if refaults >= FEW_REFAULTS && refaults > self.max_refaults.of(working_set) {
            return Some(Exceeded::Refaults {
                bytes: refaults,
                working_set,
                max: self.max_refaults,
            });
        }
        if let Some(share) = stall.filter(|share| *share > self.max_stall) {
            let max = self.max_stall;
            return Some(Exceeded::Stall { share, max });
        }
        let free = free_swap.filter(|free| *free < self.min_free_swap)?;
        let min = self.min_free_swap;
        Some(Exceeded::Swap { free, min })
    }
}

/// What the guard decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The policy is suspended from now on.
    Suspend(Exceeded),
    /// The policy goes on.
    Resume,
}

/// The guard of one policy.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// The bound that did not hold, and the end of the wait.
    suspended: Option<(Exceeded, Nanos)>,
    /// When the last suspension began, and its wait.
    last: Option<(Nanos, Nanos)>,
}

impl Guard {
    /// Judges the policy. `None`: nothing changes.
    pub fn judge(&mut self, bounds: &Bounds, measured: &Measured, now: Nanos) -> Option<Verdict> {
        let exceeded = bounds.exceeded(measured);
        match (self.suspended, exceeded) {
            (None, Some(exceeded)) => {
                let wait = self.next_wait(bounds, now);
                self.last = Some((now, wait));
                self.suspended = Some((exceeded, now.saturating_add(wait)));
                Some(Verdict::Suspend(exceeded))
            }
            (Some((_, until)), None) if now >= until => {
                self.suspended = None;
                Some(Verdict::Resume)
            }
            _ => None,
        }
    }

    fn next_wait(&self, bounds: &Bounds, now: Nanos) -> Nanos {
        let first = bounds.resume_after;
        match self.last {
            Some((began, wait)) if now.saturating_sub(began) < wait.saturating_add(HOUR) => {
                Nanos(wait.0.saturating_mul(2)).min(HOUR).max(first)
            }
            _ => first,
        }
    }

    /// The bound that did not hold, and when the policy is tried again.
    #[must_use]
    pub const fn suspended(&self) -> Option<(Exceeded, Nanos)> {
        self.suspended
    }

    /// Lets the policy go on at once: a user has asked for it.
    pub const fn release(&mut self) {
        self.suspended = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(refaults: u64) -> Measured {
        Measured {
            refaults: Bytes::mib(refaults),
            working_set: Bytes::mib(500),
            stall: Some(Permille(100)),
            free_swap: Some(Permille(100)),
        }
    }

    #[test]
    fn each_bound_is_named_with_its_figure() {
        let bounds = Bounds::default();
        let text = |measured: Measured| bounds.exceeded(&measured).map(|exceeded| exceeded.to_string());
        assert_eq!(text(measured(10)), None, "at the bounds");
        let refaults = text(measured(11)).unwrap_or_default();
        assert_eq!(
            refaults,
            "11.0 MiB came back in the last minute, of a working set of 500 MiB; the bound is 2%/min"
        );
        let stalled = Measured {
            stall: Some(Permille(101)),
            ..measured(0)
        };
        assert!(text(stalled).unwrap_or_default().contains("10.1 %"));
        let swap = Measured {
            free_swap: Some(Permille(99)),
            ..measured(0)
        };
        assert!(text(swap).unwrap_or_default().contains("9.9 % of swap is free"));
        let little = Measured {
            refaults: Bytes::kib(1000),
            working_set: Bytes::ZERO,
            ..Measured::default()
        };
        assert_eq!(text(little), None, "too few to judge");
    }

    #[test]
    fn suspended_policy_resumes_after_the_wait_if_the_bounds_hold() {
        let (bounds, mut guard) = (Bounds::default(), Guard::default());
        let mut judge = |refaults, now| guard.judge(&bounds, &measured(refaults), Nanos::secs(now));
        assert_eq!(judge(0, 0), None);
        assert!(matches!(judge(50, 1), Some(Verdict::Suspend(_))));
        assert_eq!(judge(0, 600), None, "the wait is not over");
        assert_eq!(judge(50, 601), None, "the bound does not hold");
        assert_eq!(judge(0, 602), Some(Verdict::Resume));
    }

    #[test]
    fn waits_grow_with_each_suspension() {
        let (bounds, mut guard) = (Bounds::default(), Guard::default());
        let mut now = 0;
        for wait in [600, 1200, 2400, 3600, 3600] {
            now += 1;
            let verdict = guard.judge(&bounds, &measured(50), Nanos::secs(now));
            assert!(matches!(verdict, Some(Verdict::Suspend(_))));
            assert_eq!(
                guard.suspended().map(|found| found.1),
                Some(Nanos::secs(now + wait))
            );
            now += wait;
            assert_eq!(
                guard.judge(&bounds, &measured(0), Nanos::secs(now)),
                Some(Verdict::Resume)
            );
        }
        now += 3700;
        let _ = guard.judge(&bounds, &measured(50), Nanos::secs(now));
        assert_eq!(
            guard.suspended().map(|found| found.1),
            Some(Nanos::secs(now + 600))
        );
        guard.release();
        assert_eq!(guard.suspended(), None);
    }
}
