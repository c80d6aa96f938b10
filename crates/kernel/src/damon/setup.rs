//! The configuration of a kdamond, with the names and units of the sysfs tree: microseconds, samples,
//! aggregations, permille.

use std::path::{Path, PathBuf};

use thermo_units::AddrRange;

use crate::file::{self, FileError};

/// One context: monitoring attributes, targets and schemes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Sampling interval.
    pub sample_us: u64,
    /// Aggregation interval.
    pub aggr_us: u64,
    /// Update interval.
    pub update_us: u64,
    /// Minimum and maximum number of regions.
    pub nr_regions: (u64, u64),
    /// The processes to monitor, by address space (`vaddr`).
    pub targets: Vec<u32>,
    /// The schemes.
    pub schemes: Vec<Scheme>,
}

/// A scheme. Bounds are the minimum and the maximum that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// Its action.
    pub action: &'static str,
    /// Node and weight of each destination, for actions that migrate (Linux 6.17 for address spaces).
    pub dests: Vec<(u32, u32)>,
    /// 0: once each aggregation interval.
    pub apply_interval_us: u64,
    /// Size in bytes.
    pub sz: (u64, u64),
    /// Access count in samples.
    pub nr_accesses: (u64, u64),
    /// Age in aggregation intervals.
    pub age: (u64, u64),
    /// Its quota.
    pub quota: Quota,
    /// Its watermarks.
    pub watermarks: Option<Watermarks>,
    /// Its filters.
    pub filters: Vec<Filter>,
}

impl Scheme {
    /// A scheme that applies `action` to every region.
    #[must_use]
    pub fn new(action: &'static str) -> Self {
        let any_count = (0, u64::from(u32::MAX));
        Self {
            action,
            dests: Vec::new(),
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

/// How much a scheme may do per reset interval; zero: no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quota {
    /// CPU time in milliseconds.
    pub ms: u64,
    /// Bytes.
    pub bytes: u64,
    /// The reset interval of both limits.
    pub reset_interval_ms: u64,
    /// Weights of size, access rate and age.
    pub weights: (u32, u32, u32),
    /// Goals for tuning the limits.
    pub goals: Vec<Goal>,
}

/// A goal of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// The metric, by the kernel's name.
    pub metric: &'static str,
    /// The target value.
    pub target_value: u64,
    /// The current value, for metrics that the user sets.
    pub current_value: u64,
    /// The NUMA node, for metrics of a node.
    pub nid: Option<u32>,
    /// The control group, for metrics of a group.
    pub path: Option<String>,
}

/// The free-memory rates (permille) between which a scheme is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Check interval.
    pub interval_us: u64,
    /// Inactive above this rate.
    pub high: u32,
    /// Activated below this rate.
    pub mid: u32,
    /// Inactive below this rate.
    pub low: u32,
}

/// A filter: it excludes or includes memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// What the filter matches.
    pub kind: FilterKind,
    /// True: the filter applies to memory of this kind. False: to all other memory.
    pub matching: bool,
    /// Whether the memory is included. Kernels before 6.14 support only exclusion.
    pub allow: bool,
}

/// What a filter matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterKind {
    /// An address range.
    Addr(AddrRange),
    /// The target at this index.
    Target(usize),
}

/// A folder of the tree whose files are written.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn subfolder(&self, path: impl AsRef<Path>) -> Self {
        Self(self.0.join(path))
    }

    pub(super) fn write(&self, name: &str, value: impl ToString) -> Result<(), FileError> {
        let (path, value) = (self.0.join(name), value.to_string());
        file::while_busy(|| file::write(&path, &value))
    }

    /// Writes a file that only newer kernels have. If it is missing, the value must be the default of older
    /// kernels.
    fn write_if_newer(&self, name: &str, value: impl ToString, is_default: bool) -> Result<(), FileError> {
        match self.write(name, value) {
            Err(error) if error.is_missing() && is_default => Ok(()),
            result => result,
        }
    }

    fn write_bounds(&self, name: &str, (min, max): (u64, u64)) -> Result<(), FileError> {
        let folder = self.subfolder(name);
        folder.write("min", min)?;
        folder.write("max", max)
    }

    /// Configures the context at this folder.
    pub(super) fn set_up(&self, setup: &Setup) -> Result<(), FileError> {
        self.write("operations", "vaddr")?;
        let attrs = self.subfolder("monitoring_attrs");
        let intervals = attrs.subfolder("intervals");
        intervals.write("sample_us", setup.sample_us)?;
        intervals.write("aggr_us", setup.aggr_us)?;
        intervals.write("update_us", setup.update_us)?;
        attrs.write_bounds("nr_regions", setup.nr_regions)?;
        let targets = self.subfolder("targets");
        targets.write("nr_targets", setup.targets.len())?;
        for (nth, pid) in setup.targets.iter().enumerate() {
            targets.subfolder(nth.to_string()).write("pid_target", pid)?;
        }
        let schemes = self.subfolder("schemes");
        schemes.write("nr_schemes", setup.schemes.len())?;
        for (nth, scheme) in setup.schemes.iter().enumerate() {
            schemes.subfolder(nth.to_string()).set_scheme(scheme)?;
        }
        Ok(())
    }

    fn set_scheme(&self, scheme: &Scheme) -> Result<(), FileError> {
        self.write("action", scheme.action)?;
        match scheme.dests.as_slice() {
            [] => {}
            [(nid, _)] => self.write("target_nid", nid)?,
            dests => self.subfolder("dests").set_dests(dests)?,
        }
        if scheme.apply_interval_us != 0 {
            self.write("apply_interval_us", scheme.apply_interval_us)?;
        }
        let pattern = self.subfolder("access_pattern");
        pattern.write_bounds("sz", scheme.sz)?;
        pattern.write_bounds("nr_accesses", scheme.nr_accesses)?;
        pattern.write_bounds("age", scheme.age)?;
        if scheme.quota != Quota::default() {
            self.subfolder("quotas").set_quota(&scheme.quota)?;
        }
        if let Some(watermarks) = &scheme.watermarks {
            self.subfolder("watermarks").set_watermarks(watermarks)?;
        }
        if !scheme.filters.is_empty() {
            self.subfolder("filters").set_filters(&scheme.filters)?;
        }
        Ok(())
    }

    fn set_dests(&self, dests: &[(u32, u32)]) -> Result<(), FileError> {
        self.write("nr_dests", dests.len())?;
        for (nth, (nid, weight)) in dests.iter().enumerate() {
            let folder = self.subfolder(nth.to_string());
            folder.write("id", nid)?;
            folder.write("weight", weight)?;
        }
        Ok(())
    }

    fn set_quota(&self, quota: &Quota) -> Result<(), FileError> {
        self.write("ms", quota.ms)?;
        self.write("bytes", quota.bytes)?;
        self.write("reset_interval_ms", quota.reset_interval_ms)?;
        let weights = self.subfolder("weights");
        weights.write("sz_permil", quota.weights.0)?;
        weights.write("nr_accesses_permil", quota.weights.1)?;
        weights.write("age_permil", quota.weights.2)?;
        if quota.goals.is_empty() {
            return Ok(());
        }
        let goals = self.subfolder("goals");
        goals.write("nr_goals", quota.goals.len())?;
        for (nth, goal) in quota.goals.iter().enumerate() {
            let folder = goals.subfolder(nth.to_string());
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
            let folder = self.subfolder(nth.to_string());
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
