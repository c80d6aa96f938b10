//! The guards of a policy that acts: bounds beyond which a target, or the policy, is suspended, and the rule
//! by which it resumes.
//!
//! Each target has a guard for what it alone can cause: refaults, and stall of its control groups. Otherwise
//! a user who lets a program of his stall would stop the policy for all. The policy has a guard for what the
//! machine has one of: swap, and the stall of the machine where groups do not tell theirs.
//!
//! A suspension lasts for the wait of the bounds. After that it ends once all bounds hold. Each suspension
//! within an hour of the last doubles the wait, up to an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use thermo_units::{Bytes, Nanos, Permille, SharePerMinute};

/// Below this many bytes a minute refaults are ignored: a few pages would suspend the policy.
const FEW_REFAULTS: Bytes = Bytes::mib(1);
/// The longest wait, and the time within which suspensions count as one series.
const HOUR: Nanos = Nanos::secs(3600);
/// Guards are kept of so many targets that have ended: names may come from users. Beyond, all of these are
/// forgotten.
const MAX_ENDED: usize = 1024;

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
    /// The target or the policy is suspended from now on.
    Suspend(Exceeded),
    /// It goes on.
    Resume,
}

/// The guard of one policy or target.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// The bound that did not hold, and the end of the wait.
    suspended: Option<(Exceeded, Nanos)>,
    /// When the last suspension began, and its wait.
    last: Option<(Nanos, Nanos)>,
}

impl Guard {
    /// Judges what was measured. `None`: nothing changes.
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
        match self.last.filter(|_| self.is_in_series(now)) {
            Some((_, wait)) => Nanos(wait.0.saturating_mul(2)).min(HOUR).max(first),
            None => first,
        }
    }

    /// The bound that did not hold, and when it may go on.
    #[must_use]
    pub const fn suspended(&self) -> Option<(Exceeded, Nanos)> {
        self.suspended
    }

    /// Lets it go on at once: a user has asked for it.
    pub const fn release(&mut self) {
        self.suspended = None;
    }

    /// Whether another suspension would belong to the same series.
    fn is_in_series(&self, now: Nanos) -> bool {
        self.last
            .is_some_and(|(began, wait)| now.saturating_sub(began) < wait.saturating_add(HOUR))
    }
}

/// The guards of a policy's targets, by name. A target that has ended and begins again finds its guard as it
/// was.
#[derive(Debug, Clone, Default)]
pub struct TargetGuards(BTreeMap<String, Guard>);

impl TargetGuards {
    /// Judges targets by what was measured of them. Returns what changed.
    pub fn judge(
        &mut self,
        bounds: &Bounds,
        measured: &BTreeMap<String, Measured>,
        now: Nanos,
    ) -> Vec<(String, Verdict)> {
        self.forget(measured, now);
        let mut verdicts = Vec::new();
        for (name, measured) in measured {
            if !self.0.contains_key(name) && bounds.exceeded(measured).is_none() {
                continue;
            }
            let guard = self.0.entry(name.clone()).or_default();
            verdicts.extend(
                guard
                    .judge(bounds, measured, now)
                    .map(|verdict| (name.clone(), verdict)),
            );
        }
        verdicts
    }

    fn forget(&mut self, living: &BTreeMap<String, Measured>, now: Nanos) {
        self.0.retain(|name, guard| {
            let is_suspended = guard.suspended.is_some() && living.contains_key(name);
            is_suspended || guard.is_in_series(now)
        });
        if self.0.len() > living.len() + MAX_ENDED {
            self.0.retain(|name, _| living.contains_key(name));
        }
    }

    /// The bound that did not hold for this target, and when it may go on.
    #[must_use]
    pub fn suspended(&self, name: &str) -> Option<(Exceeded, Nanos)> {
        self.0.get(name).and_then(Guard::suspended)
    }

    /// The names of all that are suspended.
    #[must_use]
    pub fn all_suspended(&self) -> BTreeSet<&str> {
        let suspended = self.0.iter().filter(|(_, guard)| guard.suspended.is_some());
        suspended.map(|(name, _)| name.as_str()).collect()
    }

    /// Lets all go on at once: a user has asked for it.
    pub fn release(&mut self) {
        self.0.values_mut().for_each(Guard::release);
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
    fn target_beyond_its_bounds_is_suspended_and_no_other() {
        let (bounds, mut guards) = (Bounds::default(), TargetGuards::default());
        let both = |of_mallory| {
            let of_mallory: Measured = of_mallory;
            BTreeMap::from([
                ("alice".to_owned(), measured(0)),
                ("mallory".to_owned(), of_mallory),
            ])
        };
        let stalled = Measured {
            stall: Some(Permille(900)),
            ..measured(0)
        };
        let verdicts = guards.judge(&bounds, &both(stalled), Nanos::secs(1));
        let names: Vec<&str> = verdicts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["mallory"]);
        assert_eq!(guards.all_suspended(), BTreeSet::from(["mallory"]));
        assert_eq!(guards.suspended("alice"), None);
        // It ends and begins again: it is suspended still, and its wait grows.
        assert_eq!(guards.judge(&bounds, &BTreeMap::new(), Nanos::secs(2)), []);
        assert!(guards.suspended("mallory").is_some());
        let resumed = guards.judge(&bounds, &both(measured(0)), Nanos::secs(601));
        assert_eq!(resumed, [("mallory".to_owned(), Verdict::Resume)]);
        let _ = guards.judge(&bounds, &both(stalled), Nanos::secs(602));
        assert_eq!(
            guards.suspended("mallory").map(|found| found.1),
            Some(Nanos::secs(602 + 1200))
        );
        guards.release();
        assert_eq!(guards.all_suspended(), BTreeSet::new());
    }

    #[test]
    fn guards_of_short_lived_names_are_forgotten() {
        let (bounds, mut guards) = (Bounds::default(), TargetGuards::default());
        for nr in 0..5000 {
            let name = format!("name-{nr}");
            let verdicts = guards.judge(&bounds, &BTreeMap::from([(name, measured(50))]), Nanos::secs(1));
            assert_eq!(verdicts.len(), 1);
            assert!(guards.0.len() <= MAX_ENDED + 2, "{}", guards.0.len());
        }
        let _ = guards.judge(&bounds, &BTreeMap::new(), Nanos::secs(10_000));
        assert_eq!(guards.0.len(), 0, "the hour after the wait is over");
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
