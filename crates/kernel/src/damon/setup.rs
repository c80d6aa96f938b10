//! What a kdamond is to do, in the tree's own words and units: microseconds, samples, aggregations, permille.

use std::path::{Path, PathBuf};

use thermo_units::AddrRange;

use crate::file::{self, FileError};

/// One context: how to look, at whom, what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Sampling interval.
    pub sample_us: u64,
    /// Aggregation interval.
    pub aggr_us: u64,
    /// Update interval.
    pub update_us: u64,
    /// Fewest and most regions.
    pub nr_regions: (u64, u64),
    /// The processes to monitor, by address space (`vaddr`).
    pub targets: Vec<u32>,
    /// What to do.
    pub schemes: Vec<Scheme>,
}

/// A scheme. Bounds are the least and the most that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// Its action.
    pub action: &'static str,
    /// 0: once an aggregation.
    pub apply_interval_us: u64,
    /// Bytes.
    pub sz: (u64, u64),
    /// Samples.
    pub nr_accesses: (u64, u64),
    /// Aggregations.
    pub age: (u64, u64),
    /// How much it may do.
    pub quota: Quota,
    /// When it is active.
    pub watermarks: Option<Watermarks>,
    /// What it leaves alone.
    pub filters: Vec<Filter>,
}

impl Scheme {
    /// One that takes every region and does `action`.
    #[must_use]
    pub fn new(action: &'static str) -> Self {
        let any_count = (0, u64::from(u32::MAX));
        Self {
            action,
            apply_interval_us: 0,
            sz: (0, u64::MAX),
            nr_accesses: any_count,
            age: any_count,
            quota: Quota::default(),
            watermarks: None,
            filters: Vec::new(),
        }
    }
}

/// How much a scheme may do in how long; zeroes are no limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quota {
    /// CPU time.
    pub ms: u64,
    /// Bytes.
    pub bytes: u64,
    /// The time both are for.
    pub reset_interval_ms: u64,
    /// Weights of size, access rate and age.
    pub weights: (u32, u32, u32),
    /// What the limits are tuned towards.
    pub goals: Vec<Goal>,
}

/// A goal of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// The kernel's name of it.
    pub metric: &'static str,
    /// What it should be.
    pub target_value: u64,
    /// What it is, where a user tells.
    pub current_value: u64,
    /// Of which node, where it is of one.
    pub nid: Option<u32>,
    /// Of which control group, where it is of one.
    pub path: Option<String>,
}

/// Between which rates of free memory (permille) a scheme works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// How often they are looked at.
    pub interval_us: u64,
    /// Above it: inactive.
    pub high: u32,
    /// Below it: active.
    pub mid: u32,
    /// Below it: inactive.
    pub low: u32,
}

/// What a scheme leaves alone, or takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// What it is about.
    pub kind: FilterKind,
    /// Whether it is for what is of that kind, or for what is not.
    pub matching: bool,
    /// Whether that is taken. Kernels before 6.14 can only leave alone.
    pub allow: bool,
}

/// What a filter is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterKind {
    /// Addresses.
    Addr(AddrRange),
    /// The target at this place of the list.
    Target(usize),
}

/// Writes files of one folder of the tree.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn below(&self, path: impl AsRef<Path>) -> Self {
        Self(self.0.join(path))
    }

    pub(super) fn write(&self, name: &str, value: impl ToString) -> Result<(), FileError> {
        let (path, value) = (self.0.join(name), value.to_string());
        file::while_busy(|| file::write(&path, &value))
    }

    /// Writes what newer kernels alone have. Where it is not there the value must be the one that older ones mean.
    fn write_if_newer(&self, name: &str, value: impl ToString, is_default: bool) -> Result<(), FileError> {
        match self.write(name, value) {
            Err(error) if error.is_missing() && is_default => Ok(()),
            answer => answer,
        }
    }

    fn write_bounds(&self, name: &str, (min, max): (u64, u64)) -> Result<(), FileError> {
        let folder = self.below(name);
        folder.write("min", min)?;
        folder.write("max", max)
    }

    /// The context at this folder.
    pub(super) fn set_up(&self, setup: &Setup) -> Result<(), FileError> {
        self.write("operations", "vaddr")?;
        let attrs = self.below("monitoring_attrs");
        let intervals = attrs.below("intervals");
        intervals.write("sample_us", setup.sample_us)?;
        intervals.write("aggr_us", setup.aggr_us)?;
        intervals.write("update_us", setup.update_us)?;
        attrs.write_bounds("nr_regions", setup.nr_regions)?;
        let targets = self.below("targets");
        targets.write("nr_targets", setup.targets.len())?;
        for (nth, pid) in setup.targets.iter().enumerate() {
            targets.below(nth.to_string()).write("pid_target", pid)?;
        }
        let schemes = self.below("schemes");
        schemes.write("nr_schemes", setup.schemes.len())?;
        for (nth, scheme) in setup.schemes.iter().enumerate() {
            schemes.below(nth.to_string()).set_scheme(scheme)?;
        }
        Ok(())
    }

    fn set_scheme(&self, scheme: &Scheme) -> Result<(), FileError> {
        self.write("action", scheme.action)?;
        if scheme.apply_interval_us != 0 {
            self.write("apply_interval_us", scheme.apply_interval_us)?;
        }
        let pattern = self.below("access_pattern");
        pattern.write_bounds("sz", scheme.sz)?;
        pattern.write_bounds("nr_accesses", scheme.nr_accesses)?;
        pattern.write_bounds("age", scheme.age)?;
        if scheme.quota != Quota::default() {
            self.below("quotas").set_quota(&scheme.quota)?;
        }
        if let Some(watermarks) = &scheme.watermarks {
            self.below("watermarks").set_watermarks(watermarks)?;
        }
        if !scheme.filters.is_empty() {
            self.below("filters").set_filters(&scheme.filters)?;
        }
        Ok(())
    }

    fn set_quota(&self, quota: &Quota) -> Result<(), FileError> {
        self.write("ms", quota.ms)?;
        self.write("bytes", quota.bytes)?;
        self.write("reset_interval_ms", quota.reset_interval_ms)?;
        let weights = self.below("weights");
        weights.write("sz_permil", quota.weights.0)?;
        weights.write("nr_accesses_permil", quota.weights.1)?;
        weights.write("age_permil", quota.weights.2)?;
        if quota.goals.is_empty() {
            return Ok(());
        }
        let goals = self.below("goals");
        goals.write("nr_goals", quota.goals.len())?;
        for (nth, goal) in quota.goals.iter().enumerate() {
            let folder = goals.below(nth.to_string());
            folder.write("target_metric", goal.metric)?;
            folder.write("target_value", goal.target_value)?;
            folder.write("current_value", goal.current_value)?;
            goal.nid.map_or(Ok(()), |nid| folder.write("nid", nid))?;
            goal.path
                .as_ref()
                .map_or(Ok(()), |path| folder.write("path", path))?;
        }
        Ok(())
    }

    fn set_watermarks(&self, watermarks: &Watermarks) -> Result<(), FileError> {
        self.write("metric", "free_mem_rate")?;
        self.write("interval_us", watermarks.interval_us)?;
        self.write("high", watermarks.high)?;
        self.write("mid", watermarks.mid)?;
        self.write("low", watermarks.low)
    }

    fn set_filters(&self, filters: &[Filter]) -> Result<(), FileError> {
        self.write("nr_filters", filters.len())?;
        for (nth, filter) in filters.iter().enumerate() {
            let folder = self.below(nth.to_string());
            match &filter.kind {
                FilterKind::Addr(range) => {
                    folder.write("type", "addr")?;
                    folder.write("addr_start", range.start.0)?;
                    folder.write("addr_end", range.end.0)?;
                }
                FilterKind::Target(index) => {
                    folder.write("type", "target")?;
                    folder.write("damon_target_idx", index)?;
                }
            }
            folder.write("matching", if filter.matching { "Y" } else { "N" })?;
            let allow = if filter.allow { "Y" } else { "N" };
            folder.write_if_newer("allow", allow, !filter.allow)?;
        }
        Ok(())
    }
}
