//! Proactive LRU sorting: the parameters of the kernel's `DAMON_LRU_SORT` (mm/damon/lru_sort.c).
//!
//! Two schemes get half of the CPU quota each. The hot scheme moves hot memory up on the kernel's LRU lists,
//! hottest first. The cold scheme moves idle memory down, longest idle first. Nothing is paged out: only the
//! order in which reclaim would take pages changes. The kernel module ranks cold memory by access rate, which
//! is 0 for all of it. This preset ranks cold memory by age, as the first patches of the module did.

use thermo_engine::scheme::{
    AccessPattern, Age, Bounds, CoreFilter, Filters, Goal, OpsFilter, OpsFilterKind, Quota, Rate,
    SystemMetric, Weights,
};
use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Action, Attrs, Scheme};
use thermo_units::{Bytes, Nanos, PAGE_SIZE, Permille};

use super::error::PresetError;
use super::parameter::{ParameterError, boolean, number, share, time};
use super::wmarks::{Wmarks, check_share, monitor_region};

/// Parameters of `DAMON_LRU_SORT`, with the module's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LruSort {
    /// Memory is hot when at least this share of access checks found it accessed.
    pub hot_thres_access_freq: Permille,
    /// Memory is cold when it was not accessed for this long.
    pub cold_min_age: Nanos,
    /// CPU time per window, in milliseconds, shared equally by both schemes; 0: no limit.
    pub quota_ms: u64,
    /// Length of the window, in milliseconds.
    pub quota_reset_interval_ms: u64,
    /// Watermarks of free memory.
    pub wmarks: Wmarks,
    /// Sampling interval.
    pub sample_interval: Nanos,
    /// Aggregation interval.
    pub aggr_interval: Nanos,
    /// Minimum number of regions.
    pub min_nr_regions: usize,
    /// Maximum number of regions.
    pub max_nr_regions: usize,
    /// Start of the monitored addresses. Virtual addresses of the targets; the module uses physical
    /// addresses.
    pub monitor_region_start: u64,
    /// End of the monitored addresses, exclusive. Start and end 0: all memory.
    pub monitor_region_end: u64,
    /// Goal of both schemes: share of LRU pages on active lists, in ten-thousandths; 0: no goal.
    pub active_mem_bp: u32,
    /// Tune `sample_interval` and `aggr_interval` until access checks find enough accesses
    /// ([`IntervalsGoal`]).
    pub autotune_monitoring_intervals: bool,
    /// Check each page's accessed bit again before it is moved: set for `lru_prio`, clear for `lru_deprio`.
    pub filter_young_pages: bool,
}

/// Overlap of the two goals in ten-thousandths, so that neither scheme stops exactly at the goal (kernel:
/// 0.02 %).
const OVERLAP_BP: u64 = 2;

impl Default for LruSort {
    fn default() -> Self {
        let attrs = Attrs::default();
        Self {
            hot_thres_access_freq: Permille(500),
            cold_min_age: Nanos::secs(120),
            quota_ms: 10,
            quota_reset_interval_ms: 1000,
            wmarks: Wmarks {
                interval: Nanos::secs(5),
                high: Permille(200),
                mid: Permille(150),
                low: Permille(50),
            },
            sample_interval: attrs.sample,
            aggr_interval: attrs.aggr,
            min_nr_regions: attrs.min_nr_regions,
            max_nr_regions: attrs.max_nr_regions,
            monitor_region_start: 0,
            monitor_region_end: 0,
            active_mem_bp: 0,
            autotune_monitoring_intervals: false,
            filter_young_pages: false,
        }
    }
}

const COUNT: &str = "a whole number, like 10";
const ADDRESS: &str = "an address, like 0x7f0000000000 or 4096";

impl LruSort {
    /// Names of all parameters.
    pub const PARAMETERS: [&'static str; 17] = [
        "hot_thres_access_freq",
        "cold_min_age",
        "quota_ms",
        "quota_reset_interval_ms",
        "wmarks_interval",
        "wmarks_high",
        "wmarks_mid",
        "wmarks_low",
        "sample_interval",
        "aggr_interval",
        "min_nr_regions",
        "max_nr_regions",
        "monitor_region_start",
        "monitor_region_end",
        "active_mem_bp",
        "autotune_monitoring_intervals",
        "filter_young_pages",
    ];

    /// Sets the parameter `name`, as writing `value` to the module's file of that name does. A bare number is
    /// in microseconds for intervals and ages, in thousandths for shares. Values with a unit (`120s`, `50%`)
    /// are accepted too.
    ///
    /// # Errors
    /// An unknown name, or a value of the wrong kind. [`LruSort::check`] checks values against each other.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        match name {
            "hot_thres_access_freq" => self.hot_thres_access_freq = share(value)?,
            "cold_min_age" => self.cold_min_age = time(value)?,
            "quota_ms" => self.quota_ms = number(value, COUNT)?,
            "quota_reset_interval_ms" => self.quota_reset_interval_ms = number(value, COUNT)?,
            "wmarks_interval" => self.wmarks.interval = time(value)?,
            "wmarks_high" => self.wmarks.high = share(value)?,
            "wmarks_mid" => self.wmarks.mid = share(value)?,
            "wmarks_low" => self.wmarks.low = share(value)?,
            "sample_interval" => self.sample_interval = time(value)?,
            "aggr_interval" => self.aggr_interval = time(value)?,
            "min_nr_regions" => self.min_nr_regions = number(value, COUNT)?,
            "max_nr_regions" => self.max_nr_regions = number(value, COUNT)?,
            "monitor_region_start" => self.monitor_region_start = number(value, ADDRESS)?,
            "monitor_region_end" => self.monitor_region_end = number(value, ADDRESS)?,
            "active_mem_bp" => self.active_mem_bp = number(value, COUNT)?,
            "autotune_monitoring_intervals" => self.autotune_monitoring_intervals = boolean(value)?,
            "filter_young_pages" => self.filter_young_pages = boolean(value)?,
            _ => {
                return Err(ParameterError::Unknown {
                    name: name.to_owned(),
                    known: Self::PARAMETERS.join(", "),
                });
            }
        }
        Ok(())
    }

    /// Checks the parameters, except the monitoring attributes, which are checked where they are used.
    ///
    /// # Errors
    /// The first invalid parameter.
    pub fn check(&self) -> Result<(), PresetError> {
        check_share("hot_thres_access_freq", self.hot_thres_access_freq)?;
        if self.active_mem_bp > 10_000 {
            return Err(PresetError::AboveMax {
                name: "active_mem_bp",
                given: self.active_mem_bp,
                max: 10_000,
            });
        }
        if self.quota_reset_interval_ms == 0 && (self.quota_ms > 0 || self.active_mem_bp > 0) {
            return Err(PresetError::MissingWindow { ms: self.quota_ms });
        }
        self.region_filter()?;
        self.wmarks.check()
    }

    /// The monitoring attributes.
    #[must_use]
    pub fn attrs(&self) -> Attrs {
        Attrs {
            sample: self.sample_interval,
            aggr: self.aggr_interval,
            min_nr_regions: self.min_nr_regions,
            max_nr_regions: self.max_nr_regions,
            ..Attrs::default()
        }
    }

    /// The goal of interval auto-tuning, if enabled: the module's 4 %, every 3 aggregations, 5 ms to 10 s.
    #[must_use]
    pub fn intervals_goal(&self) -> Option<IntervalsGoal> {
        self.autotune_monitoring_intervals.then(IntervalsGoal::default)
    }

    /// The hot scheme, then the cold scheme.
    #[must_use]
    pub fn schemes(&self) -> [Scheme; 2] {
        [self.hot(), self.cold()]
    }

    fn hot(&self) -> Scheme {
        let (by_rate, active) = (
            Weights {
                nr_accesses: 1,
                ..Weights::default()
            },
            u64::from(self.active_mem_bp),
        );
        Scheme {
            pattern: AccessPattern {
                sz: any_page(),
                nr_accesses: Bounds {
                    min: Rate::Permille(self.hot_thres_access_freq),
                    max: Rate::Permille(Permille(1000)),
                },
                ..AccessPattern::default()
            },
            quota: self.half_quota(by_rate, SystemMetric::ActiveMemBp, active),
            filters: self.filters(false),
            watermarks: self.wmarks.watermarks(),
            ..Scheme::new(Action::LruPrio)
        }
    }

    fn cold(&self) -> Scheme {
        let none = Rate::Samples(0);
        let by_age = Weights {
            age: 1,
            ..Weights::default()
        };
        let inactive = 10_000 + OVERLAP_BP - u64::from(self.active_mem_bp).min(10_000);
        Scheme {
            pattern: AccessPattern {
                sz: any_page(),
                nr_accesses: Bounds { min: none, max: none },
                age: Bounds {
                    min: Age::Time(self.cold_min_age),
                    max: Age::Time(Nanos::MAX),
                },
            },
            quota: self.half_quota(by_age, SystemMetric::InactiveMemBp, inactive),
            filters: self.filters(true),
            watermarks: self.wmarks.watermarks(),
            ..Scheme::new(Action::LruDeprio)
        }
    }

    fn half_quota(&self, weights: Weights, metric: SystemMetric, target: u64) -> Quota {
        let goal = Goal::Metric { metric, target };
        Quota {
            time: Nanos(Nanos::millis(self.quota_ms).0 / 2),
            reset_interval: Nanos::millis(self.quota_reset_interval_ms),
            weights,
            goals: Vec::from_iter((self.active_mem_bp > 0).then_some(goal)),
            ..Quota::default()
        }
    }

    fn region_filter(&self) -> Result<Option<CoreFilter>, PresetError> {
        monitor_region(self.monitor_region_start, self.monitor_region_end)
    }

    /// Skips memory outside the monitored region, and with `filter_young_pages` the pages that are young
    /// (`matching`) or those that are not.
    fn filters(&self, matching: bool) -> Filters {
        let young = OpsFilter {
            kind: OpsFilterKind::Young,
            matching,
            allow: false,
        };
        Filters {
            // `check()` rejects empty regions.
            core: Vec::from_iter(self.region_filter().ok().flatten()),
            ops: Vec::from_iter(self.filter_young_pages.then_some(young)),
        }
    }
}

const fn any_page() -> Bounds<Bytes> {
    Bounds {
        min: Bytes(PAGE_SIZE),
        max: Bytes::MAX,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_engine::scheme;

    #[test]
    fn defaults_match_the_kernel_module() {
        let preset = LruSort::default();
        preset.check().unwrap();
        let (attrs, [hot, cold]) = (preset.attrs(), preset.schemes());
        scheme::check(&[hot.clone(), cold.clone()], &attrs).unwrap();
        assert_eq!(attrs, Attrs::default());
        assert_eq!((hot.action, cold.action), (Action::LruPrio, Action::LruDeprio));
        assert_eq!(hot.pattern.nr_accesses.min.samples(&attrs), 10);
        assert_eq!(cold.pattern.nr_accesses.max.samples(&attrs), 0);
        assert_eq!(cold.pattern.age.min.aggrs(&attrs), 1200);
        for scheme in [hot, cold] {
            assert_eq!(scheme.quota.time, Nanos::millis(5), "each has half of the quota");
            assert_eq!(scheme.quota.reset_interval, Nanos::secs(1));
            assert_eq!(
                (
                    scheme.watermarks.high,
                    scheme.watermarks.mid,
                    scheme.watermarks.low
                ),
                (Permille(200), Permille(150), Permille(50))
            );
            assert!(scheme.quota.goals.is_empty() && scheme.filters == Filters::default());
        }
    }

    #[test]
    fn newer_parameters_become_goals_and_filters() {
        let preset = LruSort {
            active_mem_bp: 6000,
            filter_young_pages: true,
            monitor_region_start: 0x1000,
            monitor_region_end: 0x9000,
            ..LruSort::default()
        };
        preset.check().unwrap();
        let [hot, cold] = preset.schemes();
        scheme::check(&[hot.clone(), cold.clone()], &preset.attrs()).unwrap();
        assert_eq!(hot.quota.goals[0].target(), 6000);
        assert_eq!(cold.quota.goals[0].target(), 4002);
        assert!(!hot.filters.ops[0].matching && cold.filters.ops[0].matching);
        assert_eq!(hot.filters.core.len(), 1);
    }

    #[test]
    fn check_names_the_invalid_parameter() {
        let with = |change: fn(&mut LruSort)| {
            let mut preset = LruSort::default();
            change(&mut preset);
            preset.check().unwrap_err().to_string()
        };
        let hot = with(|p| p.hot_thres_access_freq = Permille(1001));
        assert_eq!(hot, "hot_thres_access_freq is 1001: the maximum is 1000");
        assert!(with(|p| p.active_mem_bp = 10_001).starts_with("active_mem_bp is 10001"));
        assert!(with(|p| p.wmarks.mid = Permille(201)).contains("out of order"));
        assert!(with(|p| p.wmarks.high = Permille(2000)).starts_with("wmarks_high is 2000"));
        assert!(with(|p| p.wmarks.interval = Nanos::ZERO).contains("wmarks_interval is 0"));
        assert!(with(|p| p.quota_reset_interval_ms = 0).contains("quota_reset_interval_ms is 0"));
        assert!(with(|p| p.monitor_region_start = 4096).contains("the end must be above the start"));
    }

    #[test]
    fn set_knows_every_parameter() {
        let mut preset = LruSort::default();
        for (name, value) in LruSort::PARAMETERS.into_iter().zip(1..) {
            let value: u32 = value;
            let value = if name.contains("young") || name.contains("autotune") {
                1
            } else {
                value
            };
            preset.set(name, &value.to_string()).unwrap();
        }
        assert_eq!(
            preset.cold_min_age,
            Nanos::micros(2),
            "a bare number is in the module's unit"
        );
        assert_eq!(preset.wmarks.low, Permille(8));
        assert!(preset.autotune_monitoring_intervals && preset.filter_young_pages);
        preset.set("cold_min_age", "90s").unwrap();
        preset.set("hot_thres_access_freq", "20%").unwrap();
        preset.set("monitor_region_end", "0x1000").unwrap();
        assert_eq!(
            (preset.cold_min_age, preset.hot_thres_access_freq),
            (Nanos::secs(90), Permille(200))
        );
        assert_eq!(preset.monitor_region_end, 4096);
    }

    #[test]
    fn set_changes_nothing_on_error() {
        let mut preset = LruSort::default();
        let mut refused = |name, value| preset.set(name, value).unwrap_err().to_string();
        assert!(refused("hot_thres", "1").contains("is not a parameter: use one of hot_thres_access_freq, "));
        assert!(refused("quota_ms", "-1").contains("give a whole number"));
        assert!(refused("filter_young_pages", "maybe").contains("give Y or N"));
        assert!(refused("cold_min_age", "2 parsecs").contains("parsecs"));
        assert_eq!(preset, LruSort::default());
    }
}
