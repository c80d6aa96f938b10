//! Flags about monitoring: budget, method, intervals, regions and tracker.

use anyhow::{anyhow, bail, ensure};
use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::{Attrs, IntervalsGoal};
use thermo_units::Nanos;

use super::intervals_goal::IntervalsGoalOpts;
use super::{candidates, number};

/// The budget when neither a budget nor intervals are given: 1 % of one CPU.
const DEFAULT_SHARE: CpuShare = CpuShare(10_000);

/// How often accesses are checked, with how many regions, and by which tracker.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Monitoring")]
pub struct Monitoring {
    /// CPU budget for monitoring, in percent of one CPU. Method, intervals and number of regions are chosen
    /// to fit. The first 3 seconds may use 10% [default: 1% when no interval is given]
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    cpu: Option<String>,

    /// Monitoring method: scan (every page, pass after pass) or DAMON's sampling (one page of each region)
    #[arg(long, value_name = "METHOD", value_enum, default_value_t = MethodArg::Auto)]
    method: MethodArg,

    /// Scan: time between two snapshots
    #[arg(long, value_name = "TIME", default_value = "1s")]
    snapshot: Nanos,

    /// Sampling: time between two access checks of a region [default: 5ms when --aggr is given]
    #[arg(long, visible_alias = "sample-interval", value_name = "TIME")]
    sample: Option<Nanos>,

    /// Sampling: time over which accesses are counted [default: 100ms when --sample is given]
    #[arg(long, visible_alias = "aggr-interval", value_name = "TIME")]
    aggr: Option<Nanos>,

    #[command(flatten)]
    intervals_goal: IntervalsGoalOpts,

    /// Monitor shared and locked memory, too. Its accessed bits are cleared by page-table walks (clear_refs),
    /// and the target's page faults wait meanwhile. Without this flag such memory is unknown
    #[arg(long)]
    shared: bool,

    /// With --shared: skip targets whose walk would take longer
    #[arg(long, value_name = "TIME", default_value = "100ms", requires = "shared")]
    max_walk: Nanos,

    /// Time between two updates of the targets and their mappings
    #[arg(long, value_name = "TIME", default_value = "1s")]
    update: Nanos,

    /// Minimum number of regions over all targets
    #[arg(
        long,
        visible_alias = "min-nr-regions",
        value_name = "N",
        value_parser = number::whole::<usize>,
        default_value = "10"
    )]
    min_regions: usize,

    /// Maximum number of regions over all targets [default: 1000; scans allow at least 20 per target]
    #[arg(long, visible_alias = "max-nr-regions", value_name = "N", value_parser = number::whole::<usize>)]
    max_regions: Option<usize>,

    /// Tracker that finds accesses: auto, or a name that `thermo doctor` lists
    #[arg(long, value_name = "NAME", default_value = "auto", add = candidates::trackers())]
    pub tracker: String,

    /// Seed of all random choices; the same seed checks the same pages
    #[arg(long, value_name = "N", value_parser = number::whole::<u64>, default_value = "1")]
    pub seed: u64,

    /// Print method and intervals whenever they change
    #[arg(short, long)]
    pub verbose: bool,
}

/// Monitoring methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum MethodArg {
    /// Scan if the tracker can; sampling otherwise, or when intervals are given
    Auto,
    /// Check one page of each region; the cost grows with the number of regions
    Sampling,
    /// Check every page; the cost grows with resident memory
    Scan,
}

/// Regions that a scan allows each target when `--max-regions` is not given. A small process, with its
/// libraries, has about fifteen areas of different access patterns.
const REGIONS_PER_TARGET: usize = 20;

impl Monitoring {
    /// Regions that a scan allows each target; 0 when `--max-regions` is given.
    #[must_use]
    pub const fn regions_per_target(&self) -> usize {
        if self.max_regions.is_some() {
            0
        } else {
            REGIONS_PER_TARGET
        }
    }

    /// Time between two snapshots of a scan.
    ///
    /// # Errors
    /// The interval is too short.
    pub fn snapshot_interval(&self) -> anyhow::Result<Nanos> {
        const MIN: Nanos = Nanos::millis(50);
        ensure!(
            self.snapshot >= MIN,
            "--snapshot {} is too short: the minimum is {MIN}",
            self.snapshot
        );
        Ok(self.snapshot)
    }

    /// The attributes that the flags give.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub fn attrs(&self) -> anyhow::Result<Attrs> {
        let default = Attrs::default();
        let attrs = Attrs {
            sample: self.sample.unwrap_or(default.sample),
            aggr: self.aggr.unwrap_or(default.aggr),
            update: self.update,
            min_nr_regions: self.min_regions,
            max_nr_regions: self.max_regions.unwrap_or(default.max_nr_regions),
        };
        let attrs = self.intervals_goal.first_attrs(attrs, self.sample.is_some())?;
        attrs.check()?;
        Ok(attrs)
    }

    /// Parameters in a file work like command-line flags. `names` are those the file sets, by the kernel
    /// modules' names, and `attrs` has their values.
    pub fn set_from_file(&mut self, names: &[String], attrs: &Attrs) {
        let is_set = |name: &str| names.iter().any(|one| one == name);
        if is_set("sample_interval") || is_set("aggr_interval") {
            (self.sample, self.aggr) = (Some(attrs.sample), Some(attrs.aggr));
        }
        if is_set("max_nr_regions") {
            self.max_regions = Some(attrs.max_nr_regions);
        }
    }

    /// Whether a budget or scans are requested. The kernel's DAMON supports neither.
    pub fn needs_own_context(&self) -> bool {
        self.cpu.is_some() || self.method == MethodArg::Scan
    }

    /// The goal of interval tuning; `None` without tuning.
    ///
    /// # Errors
    /// The goal does not parse or is out of range.
    pub fn intervals_goal(&self) -> anyhow::Result<Option<IntervalsGoal>> {
        self.intervals_goal.goal()
    }

    /// True if shared and locked memory is monitored, too.
    pub const fn is_shared(&self) -> bool {
        self.shared
    }

    /// How long a page-table walk for shared memory may take; `None` without `--shared`.
    ///
    /// # Errors
    /// The time is zero.
    pub fn max_walk_time(&self) -> anyhow::Result<Option<Nanos>> {
        ensure!(
            self.max_walk > Nanos::ZERO,
            "--max-walk 0 allows no walk: give a time like 100ms, or leave --shared out"
        );
        Ok(self.shared.then_some(self.max_walk))
    }

    /// The budget and the methods it may choose; `None` when intervals are given or tuned (`has_goal`) and no
    /// budget is given.
    ///
    /// # Errors
    /// The budget is out of range, or flags contradict each other.
    pub fn budget(&self, has_goal: bool) -> anyhow::Result<Option<(CpuShare, MethodPolicy)>> {
        let by_hand = self.sample.is_some() || self.aggr.is_some();
        if has_goal {
            return self.no_budget();
        }
        ensure!(
            !(self.shared && (by_hand || self.method == MethodArg::Sampling)),
            "--shared scans every page: leave --sample, --aggr and --method sampling out"
        );
        ensure!(
            !(by_hand && self.method == MethodArg::Scan),
            "--method scan has no --sample and --aggr: leave those out, or use --method sampling"
        );
        let policy = match self.method {
            _ if by_hand => MethodPolicy::FixedIntervals,
            MethodArg::Auto if self.shared => MethodPolicy::Scan,
            MethodArg::Auto => MethodPolicy::Auto,
            MethodArg::Sampling => MethodPolicy::Sampling,
            MethodArg::Scan => MethodPolicy::Scan,
        };
        let default = (!by_hand).then_some(DEFAULT_SHARE);
        let given = self
            .cpu
            .as_deref()
            .map(thermo_runtime::cpu_share::parse)
            .transpose();
        let given = given.map_err(|error| anyhow!("--cpu: {error}"))?;
        Ok(given.or(default).map(|share| (share, policy)))
    }

    /// A goal of interval tuning excludes a budget.
    fn no_budget(&self) -> anyhow::Result<Option<(CpuShare, MethodPolicy)>> {
        let other = match () {
            () if self.cpu.is_some() => "--cpu",
            () if self.method == MethodArg::Scan => "--method scan",
            () if self.shared => "--shared",
            () => return Ok(None),
        };
        bail!("intervals are either tuned towards a goal or chosen for {other}: leave one of the two out")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::args::parsed;

    fn budget(arguments: &[&str]) -> anyhow::Result<Option<(CpuShare, MethodPolicy)>> {
        parsed::<Monitoring>(arguments).budget(false)
    }

    #[test]
    fn parameters_of_a_file_work_like_flags() {
        let flags = || parsed::<Monitoring>(&[]);
        let attrs = flags().attrs().unwrap();
        let with = |name: &str| {
            let mut monitoring = flags();
            monitoring.set_from_file(&[name.to_owned()], &attrs);
            assert_eq!(monitoring.attrs().unwrap(), attrs);
            (monitoring.budget(false).unwrap(), monitoring.regions_per_target())
        };
        let budgeted = Some((DEFAULT_SHARE, MethodPolicy::Auto));
        assert_eq!(with("quota_ms"), (budgeted, REGIONS_PER_TARGET));
        assert_eq!(with("aggr_interval"), (None, REGIONS_PER_TARGET));
        assert_eq!(with("max_nr_regions"), (budgeted, 0));
    }

    #[test]
    fn budget_applies_unless_intervals_are_given() {
        let half = CpuShare(5_000);
        for (arguments, expected) in [
            (&[][..], Some((DEFAULT_SHARE, MethodPolicy::Auto))),
            (&["--cpu", "0.5%"], Some((half, MethodPolicy::Auto))),
            (
                &["--method", "sampling"],
                Some((DEFAULT_SHARE, MethodPolicy::Sampling)),
            ),
            (&["--method", "scan"], Some((DEFAULT_SHARE, MethodPolicy::Scan))),
            (
                &["--max-regions", "50"],
                Some((DEFAULT_SHARE, MethodPolicy::Auto)),
            ),
            (&["--sample", "1ms"], None),
            (&["--aggr", "1s"], None),
            (
                &["--aggr", "1s", "--cpu", "0.5"],
                Some((half, MethodPolicy::FixedIntervals)),
            ),
        ] {
            assert_eq!(budget(arguments).unwrap(), expected, "{arguments:?}");
        }
    }

    #[test]
    fn wrong_budget_names_its_flag() {
        for text in ["0", "-1%", "much"] {
            let error = budget(&["--cpu", text]).unwrap_err().to_string();
            assert!(error.starts_with("--cpu: "), "{error}");
        }
    }

    #[test]
    fn walk_time_of_zero_is_refused() {
        let max = |text: &str| parsed::<Monitoring>(&["--shared", "--max-walk", text]).max_walk_time();
        assert_eq!(max("5ms").unwrap(), Some(Nanos::millis(5)));
        assert!(max("0").unwrap_err().to_string().contains("like 100ms"));
        assert_eq!(parsed::<Monitoring>(&[]).max_walk_time().unwrap(), None);
    }

    #[test]
    fn shared_memory_requires_scans() {
        let one_percent = Some((DEFAULT_SHARE, MethodPolicy::Scan));
        assert_eq!(budget(&["--shared"]).unwrap(), one_percent);
        for (first, second) in [("--sample", "1ms"), ("--aggr", "1s"), ("--method", "sampling")] {
            let error = budget(&["--shared", first, second]).unwrap_err();
            assert!(error.to_string().contains("--shared scans every page"), "{error}");
        }
    }

    #[test]
    fn intervals_goal_excludes_a_budget() {
        let with_goal = |arguments: &[&str]| {
            let flags = [&["--intervals-autotune"], arguments].concat();
            parsed::<Monitoring>(&flags).budget(true)
        };
        assert_eq!(with_goal(&[]).unwrap(), None);
        assert_eq!(with_goal(&["--sample", "10ms", "--aggr", "1s"]).unwrap(), None);
        for (more, named) in [
            (&["--cpu", "1%"][..], "--cpu"),
            (&["--method", "scan"], "--method scan"),
            (&["--shared"], "--shared"),
        ] {
            let error = with_goal(more).unwrap_err();
            assert!(
                error.to_string().contains(&format!("chosen for {named}:")),
                "{error}"
            );
        }
    }

    #[test]
    fn scan_excludes_sampling_intervals() {
        let error = budget(&["--method", "scan", "--sample", "1ms"]).unwrap_err();
        assert!(error.to_string().contains("--method sampling"), "{error}");
    }
}
