//! Proactive LRU sorting: the parameters of the kernel's `DAMON_LRU_SORT` (mm/damon/lru_sort.c).
//!
//! Two schemes share one CPU quota in halves: what is hot moves up on the kernel's LRU lists, the hottest first;
//! what has long been idle moves down, the longest idle first. Nothing is paged out: only what reclaim would take
//! first, should it come, changes. The module ranks its cold half by access rate, which is 0 for all of it; here
//! it is ranked by age, as its first patches did.

use thermo_engine::scheme::{
    AccessPattern, Age, Bounds, CoreFilter, Filters, Goal, OpsFilter, OpsFilterKind, Quota, Rate,
    SystemMetric, Weights,
};
use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Action, Attrs, Scheme};
use thermo_units::{Bytes, Nanos, PAGE_SIZE, Permille};

use super::error::PresetError;
use super::parameter::{ParameterError, boolean, number, share, time};
use super::wmarks::{Wmarks, at_most_all, monitor_region};

/// The parameters. The defaults are the module's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LruSort {
    /// Hot: seen accessed in at least this share of all looks.
    pub hot_thres_access_freq: Permille,
    /// Cold: not touched for this long.
    pub cold_min_age: Nanos,
    /// CPU time to spend in a window, in milliseconds, half of it on each; 0: no limit.
    pub quota_ms: u64,
    /// Length of the window, in milliseconds.
    pub quota_reset_interval_ms: u64,
    /// While which state of free memory.
    pub wmarks: Wmarks,
    /// Time between two looks at a region.
    pub sample_interval: Nanos,
    /// Time over which looks are counted.
    pub aggr_interval: Nanos,
    /// Fewest regions.
    pub min_nr_regions: usize,
    /// Most regions.
    pub max_nr_regions: usize,
    /// Only memory from this address on. The module's are physical addresses, these are the targets' own.
    pub monitor_region_start: u64,
    /// Only memory below this address; both 0: all of it.
    pub monitor_region_end: u64,
    /// Share of the LRU pages to have on active lists, in ten-thousandths: both halves are tuned towards it; 0:
    /// they are not tuned.
    pub active_mem_bp: u32,
    /// Tune `sample_interval` and `aggr_interval` so that looks find enough accesses ([`IntervalsGoal`]).
    pub autotune_monitoring_intervals: bool,
    /// Look at each page's accessed mark again before it is moved: up only with, down only without.
    pub filter_young_pages: bool,
}

/// By how much the goals of both halves overlap, so that neither stands still at the border (kernel: 0.02 %).
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
    /// The names of all parameters.
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

    /// Sets the parameter `name` as writing `value` to the module's file of that name does: bare numbers are
    /// microseconds for intervals and ages, thousandths for shares. Values with a unit (`120s`, `50%`) do too.
    ///
    /// # Errors
    /// There is no such parameter, or the value is none for it. Whether it fits the others is told by
    /// [`LruSort::check`].
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

    /// Whether they can be meant. Attributes are checked where they are used.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), PresetError> {
        at_most_all("hot_thres_access_freq", self.hot_thres_access_freq)?;
        if self.active_mem_bp > 10_000 {
            return Err(PresetError::OverAll {
                name: "active_mem_bp",
                given: self.active_mem_bp,
                most: 10_000,
            });
        }
        if self.quota_reset_interval_ms == 0 && (self.quota_ms > 0 || self.active_mem_bp > 0) {
            return Err(PresetError::NoWindow { ms: self.quota_ms });
        }
        self.elsewhere()?;
        self.wmarks.check()
    }

    /// The attributes they mean.
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

    /// What the intervals are tuned towards, if they are: the module's 4 %, every 3 aggregations, 5 ms to 10 s.
    #[must_use]
    pub fn intervals_goal(&self) -> Option<IntervalsGoal> {
        self.autotune_monitoring_intervals.then(IntervalsGoal::default)
    }

    /// The schemes they mean: the hot one, then the cold one.
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

    fn elsewhere(&self) -> Result<Option<CoreFilter>, PresetError> {
        monitor_region(self.monitor_region_start, self.monitor_region_end)
    }

    /// Pages that are young (`matching`), or those that are not, are left alone, and so is what lies elsewhere.
    fn filters(&self, matching: bool) -> Filters {
        let young = OpsFilter {
            kind: OpsFilterKind::Young,
            matching,
            allow: false,
        };
        Filters {
            // A region that is nothing does not come past the check.
            core: Vec::from_iter(self.elsewhere().ok().flatten()),
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
    fn the_defaults_are_those_of_the_module() {
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
    fn the_newer_parameters_are_goals_and_filters() {
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
    fn what_cannot_be_meant_is_refused_by_name() {
        let with = |change: fn(&mut LruSort)| {
            let mut preset = LruSort::default();
            change(&mut preset);
            preset.check().unwrap_err().to_string()
        };
        let hot = with(|p| p.hot_thres_access_freq = Permille(1001));
        assert_eq!(hot, "hot_thres_access_freq is 1001, and the most is 1000");
        assert!(with(|p| p.active_mem_bp = 10_001).starts_with("active_mem_bp is 10001"));
        assert!(with(|p| p.wmarks.mid = Permille(201)).contains("out of order"));
        assert!(with(|p| p.wmarks.high = Permille(2000)).starts_with("wmarks_high is 2000"));
        assert!(with(|p| p.wmarks.interval = Nanos::ZERO).contains("wmarks_interval is 0"));
        assert!(with(|p| p.quota_reset_interval_ms = 0).contains("quota_reset_interval_ms is 0"));
        assert!(with(|p| p.monitor_region_start = 4096).contains("the end must lie behind the start"));
    }

    #[test]
    fn every_parameter_is_set_by_its_name() {
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
    fn a_wrong_name_or_value_changes_nothing() {
        let mut preset = LruSort::default();
        let mut refused = |name, value| preset.set(name, value).unwrap_err().to_string();
        assert!(refused("hot_thres", "1").contains("is not a parameter: use one of hot_thres_access_freq, "));
        assert!(refused("quota_ms", "-1").contains("give a whole number"));
        assert!(refused("filter_young_pages", "maybe").contains("give Y or N"));
        assert!(refused("cold_min_age", "2 parsecs").contains("parsecs"));
        assert_eq!(preset, LruSort::default());
    }
}
