//! Proactive reclaim: the parameters of the kernel's `DAMON_RECLAIM` (mm/damon/reclaim.c).

use thermo_engine::scheme::{
    AccessPattern, Age, AutoAge, Bounds, Filters, Goal, OpsFilter, OpsFilterKind, Quota, Rate, SystemMetric,
    Weights,
};
use thermo_engine::{Action, Scheme};
use thermo_units::{Bytes, Nanos, PAGE_SIZE, Permille};

use super::error::PresetError;
use super::wmarks::Wmarks;

/// Parameters of `DAMON_RECLAIM`, with the module's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaim {
    /// Memory is paged out when it was not accessed for this long.
    pub min_age: Nanos,
    /// Chooses the age instead. Not a parameter of the module.
    pub auto_age: Option<AutoAge>,
    /// CPU time per window, in milliseconds; 0: no limit.
    pub quota_ms: u64,
    /// Bytes to page out per window; 0: no limit.
    pub quota_sz: Bytes,
    /// Length of the window, in milliseconds.
    pub quota_reset_interval_ms: u64,
    /// Goal of memory pressure, in microseconds of stall per window; 0: no goal.
    pub quota_mem_pressure_us: u64,
    /// User feedback; the goal is 10,000, and a lower value makes reclaim more aggressive. 0: no goal.
    pub quota_autotune_feedback: u64,
    /// Watermarks of free memory.
    pub wmarks: Wmarks,
    /// Skip anonymous memory.
    pub skip_anon: bool,
}

impl Default for Reclaim {
    fn default() -> Self {
        Self {
            min_age: Nanos::secs(120),
            auto_age: None,
            quota_ms: 10,
            quota_sz: Bytes::mib(128),
            quota_reset_interval_ms: 1000,
            quota_mem_pressure_us: 0,
            quota_autotune_feedback: 0,
            wmarks: Wmarks {
                interval: Nanos::secs(5),
                high: Permille(500),
                mid: Permille(400),
                low: Permille(200),
            },
            skip_anon: false,
        }
    }
}

impl Reclaim {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first invalid parameter.
    pub fn check(&self) -> Result<(), PresetError> {
        let is_limited = self.quota_ms > 0
            || self.quota_sz > Bytes::ZERO
            || self.quota_mem_pressure_us > 0
            || self.quota_autotune_feedback > 0;
        if self.quota_reset_interval_ms == 0 && is_limited {
            return Err(PresetError::MissingWindow { ms: self.quota_ms });
        }
        self.wmarks.check()
    }

    /// The scheme that the parameters stand for.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        let none = Rate::Samples(0);
        let skip_anon = OpsFilter {
            kind: OpsFilterKind::Anon,
            matching: true,
            allow: false,
        };
        let pressure = Goal::Metric {
            metric: SystemMetric::SomeMemPsiUs,
            target: self.quota_mem_pressure_us,
        };
        let feedback = Goal::UserInput {
            target: 10_000,
            current: self.quota_autotune_feedback,
        };
        let goals = [
            (self.quota_mem_pressure_us > 0).then_some(pressure),
            (self.quota_autotune_feedback > 0).then_some(feedback),
        ];
        Scheme {
            pattern: AccessPattern {
                sz: Bounds {
                    min: Bytes(PAGE_SIZE),
                    max: Bytes::MAX,
                },
                nr_accesses: Bounds { min: none, max: none },
                age: Bounds {
                    min: Age::Time(if self.auto_age.is_some() {
                        Nanos::ZERO
                    } else {
                        self.min_age
                    }),
                    max: Age::Time(Nanos::MAX),
                },
            },
            auto_age: self.auto_age,
            quota: Quota {
                time: Nanos::millis(self.quota_ms),
                sz: self.quota_sz,
                reset_interval: Nanos::millis(self.quota_reset_interval_ms),
                weights: Weights {
                    age: 1,
                    ..Weights::default()
                },
                goals: goals.into_iter().flatten().collect(),
                ..Quota::default()
            },
            watermarks: self.wmarks.watermarks(),
            filters: Filters {
                ops: Vec::from_iter(self.skip_anon.then_some(skip_anon)),
                ..Filters::default()
            },
            ..Scheme::new(Action::Pageout)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_engine::{Attrs, scheme};

    #[test]
    fn automatic_age_replaces_the_minimum_age() {
        let preset = Reclaim {
            auto_age: Some(AutoAge::default()),
            ..Reclaim::default()
        };
        let scheme = preset.scheme();
        assert_eq!(scheme.pattern.age.min, Age::Time(Nanos::ZERO));
        assert_eq!(scheme.auto_age, Some(AutoAge::default()));
        assert_eq!(scheme::check(&[scheme], &Attrs::default()), Ok(()));
    }

    #[test]
    fn defaults_match_the_kernel_module() {
        let scheme = Reclaim::default().scheme();
        assert_eq!(scheme.pattern.age.min.aggrs(&Attrs::default()), 1200);
        assert_eq!(
            (scheme.quota.time, scheme.quota.sz),
            (Nanos::millis(10), Bytes(134_217_728))
        );
        assert_eq!(
            (scheme.watermarks.high, scheme.watermarks.low),
            (Permille(500), Permille(200))
        );
        assert!(scheme.quota.goals.is_empty() && scheme.filters.ops.is_empty());
    }
}
