//! The account of a budget, and the attributes that follow from it.

use super::sampling_plan::{next_sample, sample_attrs, sample_each};
use crate::attrs::Attrs;
use crate::budget::{Budget, CpuShare, Method, MethodPolicy, Plan};
use crate::scan::MAX_NR_ACCESSES;
use thermo_units::Nanos;

/// What an access check costs before any was measured.
const GUESSED_CHECK: Nanos = Nanos::micros(4);
/// The interval of snapshots where scans go on.
const SNAPSHOT_INTERVAL: Nanos = Nanos::secs(1);
/// The mean cost is that of about so long, and of four aggregations at least.
const MEAN_OVER: Nanos = Nanos::secs(4);

/// The account of a budget.
#[derive(Debug)]
pub(super) struct BudgetState {
    pub(super) policy: MethodPolicy,
    pub(super) account: Budget,
    /// What the user asked for; only the numbers of regions and the update interval count.
    pub(super) asked: Attrs,
    /// Regions that each target has room for in scans, however few were asked for.
    pub(super) regions_each: usize,
    /// The interval of snapshots where scans go on.
    pub(super) snapshot_interval: Nanos,
    /// All that was spent on monitoring so far.
    pub(super) total: Nanos,
    /// The same when the aggregation that is running began.
    total_at_start: Nanos,
    /// What a sampling interval has cost on average of late; none before one was measured.
    cost: Option<Nanos>,
    /// Regions that were sampled when the aggregation that is running began.
    nr_regions: usize,
    /// What the step that was made last did and is paced by what it costs.
    pub(super) last_work: Option<PacedWork>,
}

/// Work that comes the less often the more it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacedWork {
    /// Targets were brought up to date, and nothing else was done.
    Update,
    /// Regions were derived from pages.
    Regions,
    /// Schemes were applied to runs of pages.
    Schemes,
}

impl BudgetState {
    pub(super) fn new(share: CpuShare, policy: MethodPolicy, asked: Attrs) -> Self {
        Self {
            policy,
            account: Budget::new(share, Nanos::ZERO),
            asked,
            regions_each: 0,
            snapshot_interval: SNAPSHOT_INTERVAL,
            total: Nanos::ZERO,
            total_at_start: Nanos::ZERO,
            cost: None,
            nr_regions: 0,
            last_work: None,
        }
    }

    /// Until when nothing may be spent, if that lies ahead.
    pub(super) fn resting_at(&self, now: Nanos) -> Option<Nanos> {
        Some(self.account.free_at()).filter(|free_at| *free_at > now)
    }

    /// The method on operations that can scan or not.
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
            Method::Sampling if self.policy == MethodPolicy::ByHand => self.asked,
            Method::Sampling => sample_attrs(self.account.share(), &self.asked, GUESSED_CHECK, usize::MAX),
        }
    }

    /// Attributes of scans: a snapshot interval counts like a whole aggregation of samples.
    fn scan_attrs(&self) -> Attrs {
        Attrs {
            sample: Nanos(self.snapshot_interval.0 / u64::from(MAX_NR_ACCESSES)),
            aggr: self.snapshot_interval,
            ..self.asked
        }
    }

    pub(super) fn plan(&self, method: Method, attrs: Attrs) -> Plan {
        Plan {
            share: self.account.share(),
            method,
            attrs,
        }
    }

    /// The attributes to sample with from now on, where an aggregation with `attrs` shows that others fit better.
    pub(super) fn after_samples(&mut self, attrs: &Attrs, nr_regions: usize) -> Option<Attrs> {
        let cost = self.total.saturating_sub(self.total_at_start);
        self.total_at_start = self.total;
        let before = std::mem::replace(&mut self.nr_regions, nr_regions);
        if self.policy == MethodPolicy::ByHand || before == 0 {
            return None;
        }
        let cost = Nanos(cost.0 / u64::from(attrs.max_nr_accesses()));
        let cost = self.cost.map_or(cost, |mean| mean_cost(mean, cost, attrs.aggr));
        self.cost = Some(cost);
        let check = Nanos((cost.0 / before as u64).max(1));
        let share = self.account.share();
        let next = sample_attrs(share, &self.asked, check, before);
        let (most, was) = (next.max_nr_regions, attrs.max_nr_regions);
        if most.abs_diff(was) * 3 > was {
            return Some(next);
        }
        Some(sample_each(
            next_sample(share.time_for(cost), attrs.sample)?,
            next,
        ))
    }
}

/// The mean cost after one of `interval` has cost `cost`. Single ones vary, and where heat moves those cost more that come
/// just after it did; a plan should not follow each.
fn mean_cost(mean: Nanos, cost: Nanos, interval: Nanos) -> Nanos {
    let (weight, all) = (interval.0.min(MEAN_OVER.0 / 4), u128::from(MEAN_OVER.0));
    let weight = u128::from(weight);
    let mean = (u128::from(mean.0) * (all - weight) + u128::from(cost.0) * weight) / all;
    Nanos(u64::try_from(mean).unwrap_or(u64::MAX))
}
