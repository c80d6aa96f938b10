//! The state of a CPU budget and the attributes derived from it.

use super::sampling_plan::{next_sampling_interval, sampling_attrs, with_sampling_interval};
use crate::attrs::Attrs;
use crate::budget::{Budget, CpuShare, Method, MethodPolicy, Plan};
use crate::scan::MAX_NR_ACCESSES;
use thermo_units::Nanos;

/// Assumed cost of an access check before the first measurement.
const ASSUMED_CHECK_COST: Nanos = Nanos::micros(4);
/// Default interval of snapshots when scanning.
const SNAPSHOT_INTERVAL: Nanos = Nanos::secs(1);
/// Time constant of the mean cost. The mean covers at least four aggregations.
const MEAN_TIME: Nanos = Nanos::secs(4);

/// The state of a CPU budget.
#[derive(Debug)]
pub(super) struct BudgetState {
    pub(super) policy: MethodPolicy,
    pub(super) account: Budget,
    /// Attributes requested by the user. The budget overrides the sampling and aggregation intervals.
    pub(super) requested: Attrs,
    /// Minimum number of regions per target when scanning, whatever maximum was requested.
    pub(super) regions_per_target: usize,
    /// Interval of snapshots when scanning.
    pub(super) snapshot_interval: Nanos,
    /// Total CPU time of monitoring.
    pub(super) total: Nanos,
    /// `total` at the start of the running aggregation.
    total_at_start: Nanos,
    /// Recent mean cost of a sampling interval; `None` before the first measurement.
    cost: Option<Nanos>,
    /// Number of sampled regions at the start of the running aggregation.
    nr_regions: usize,
    /// Cost of the last update of targets; `None` before the first.
    pub(super) update_cost: Option<Nanos>,
    /// Time between the last update of targets and the next.
    pub(super) update_interval: Nanos,
    pub(super) warned_of_late_updates: bool,
    /// Paced work done in the last step.
    pub(super) last_work: Option<PacedWork>,
}

/// Work that is repeated less often the more it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacedWork {
    /// Updating targets, and nothing else.
    Update,
    /// Deriving regions from pages.
    Regions,
    /// Applying schemes to runs of pages.
    Schemes,
}

impl BudgetState {
    pub(super) fn new(share: CpuShare, policy: MethodPolicy, requested: Attrs) -> Self {
        Self {
            policy,
            account: Budget::new(share, Nanos::ZERO),
            requested,
            regions_per_target: 0,
            snapshot_interval: SNAPSHOT_INTERVAL,
            total: Nanos::ZERO,
            total_at_start: Nanos::ZERO,
            cost: None,
            nr_regions: 0,
            update_cost: None,
            update_interval: Nanos::ZERO,
            warned_of_late_updates: false,
            last_work: None,
        }
    }

    /// End of the current rest, if the budget is in debt at `now`.
    pub(super) fn pause_until(&self, now: Nanos) -> Option<Nanos> {
        Some(self.account.free_at()).filter(|free_at| *free_at > now)
    }

    /// The method for operations that can scan or not.
    pub(super) fn method(&self, can_scan: bool) -> Method {
        match self.policy {
            MethodPolicy::Auto | MethodPolicy::Scan if can_scan => Method::Scan,
            _ => Method::Sampling,
        }
    }

    /// The attributes to begin with.
    pub(super) fn first_attrs(&self, method: Method) -> Attrs {
        match method {
            Method::Scan => self.scan_attrs(),
            Method::Sampling if self.policy == MethodPolicy::FixedIntervals => self.requested,
            Method::Sampling => sampling_attrs(
                self.account.share(),
                &self.requested,
                ASSUMED_CHECK_COST,
                usize::MAX,
            ),
        }
    }

    /// Attributes for scanning: a snapshot interval counts like one aggregation of samples.
    fn scan_attrs(&self) -> Attrs {
        Attrs {
            sample: Nanos(self.snapshot_interval.0 / u64::from(MAX_NR_ACCESSES)),
            aggr: self.snapshot_interval,
            ..self.requested
        }
    }

    pub(super) fn plan(&self, method: Method, attrs: Attrs) -> Plan {
        Plan {
            share: self.account.share(),
            method,
            attrs,
        }
    }

    /// New sampling attributes, if the cost of the aggregation that ran with `attrs` calls for a change.
    pub(super) fn adjusted_attrs(&mut self, attrs: &Attrs, nr_regions: usize) -> Option<Attrs> {
        let cost = self.total.saturating_sub(self.total_at_start);
        self.total_at_start = self.total;
        let sampled = std::mem::replace(&mut self.nr_regions, nr_regions);
        if self.policy == MethodPolicy::FixedIntervals || sampled == 0 {
            return None;
        }
        let cost = Nanos(cost.0 / u64::from(attrs.max_nr_accesses()));
        let cost = self.cost.map_or(cost, |mean| mean_cost(mean, cost, attrs.aggr));
        self.cost = Some(cost);
        let check_cost = Nanos((cost.0 / sampled as u64).max(1));
        let share = self.account.share();
        let next = sampling_attrs(share, &self.requested, check_cost, sampled);
        let current = attrs.max_nr_regions;
        if next.max_nr_regions.abs_diff(current) * 3 > current {
            return Some(next);
        }
        let sample = next_sampling_interval(share.time_for(cost), attrs.sample)?;
        Some(with_sampling_interval(next, sample))
    }
}

/// Updates the mean with `cost`, measured over `interval`. The mean smooths variation, such as the higher
/// cost just after the access pattern changed, so that the plan does not follow every aggregation.
fn mean_cost(mean: Nanos, cost: Nanos, interval: Nanos) -> Nanos {
    let total = u128::from(MEAN_TIME.0);
    let weight = u128::from(interval.0.min(MEAN_TIME.0 / 4));
    let mean = (u128::from(mean.0) * (total - weight) + u128::from(cost.0) * weight) / total;
    Nanos(u64::try_from(mean).unwrap_or(u64::MAX))
}
