//! How to monitor.

use anyhow::{anyhow, bail, ensure};
use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::{Attrs, IntervalsGoal};
use thermo_units::Nanos;

use super::cpu_share;
use super::tuned::Tuned;

/// The budget for monitoring where neither intervals nor a budget are given: one percent.
const DEFAULT_SHARE: CpuShare = CpuShare(10_000);

/// How often accesses are checked, with how many regions, and by which tracker.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Monitoring")]
pub struct Monitoring {
    /// CPU budget for monitoring, in percent of one CPU. Method, intervals and number of regions are chosen to fit. 1%
    /// when no interval is given; the first 3 seconds may use 10%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    cpu: Option<String>,

    /// Monitoring method: scan every page, pass after pass, or DAMON's sampling, one page of each region
    #[arg(long, value_name = "METHOD", value_enum, default_value_t = MethodArg::Auto)]
    method: MethodArg,

    /// Time between two snapshots of a scan
    #[arg(long, value_name = "TIME", default_value = "1s")]
    snapshot: Nanos,

    /// Sample: time between two access checks of a region [5ms when only --aggr is given]
    #[arg(long, visible_alias = "sample-interval", value_name = "TIME")]
    sample: Option<Nanos>,

    /// Sample: time over which accesses are counted [100ms when only --sample is given]
    #[arg(long, visible_alias = "aggr-interval", value_name = "TIME")]
    aggr: Option<Nanos>,

    #[command(flatten)]
    tuned: Tuned,

    /// Monitor shared and locked memory, too: its accessed bits are cleared by walks (clear_refs) that hold up the page
    /// faults of a target meanwhile. Without it such memory is unknown
    #[arg(long)]
    shared: bool,

    /// Do not walk a target where that would take longer
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
        default_value_t = 10
    )]
    min_regions: usize,

    /// Maximum number of regions over all targets [default: 1000; scans allow at least 20 per target]
    #[arg(long, visible_alias = "max-nr-regions", value_name = "N")]
    max_regions: Option<usize>,

    /// How accesses are found: auto, or a tracker that `thermo doctor` lists
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub tracker: String,

    /// Seed of all random choices; the same seed checks the same pages
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Print method and intervals whenever they change
    #[arg(short, long)]
    pub verbose: bool,
}

/// Monitoring methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum MethodArg {
    /// Scan, where the tracker can; sampling where not, or where intervals are given
    Auto,
    /// One page of each region; the cost follows the number of regions
    Sampling,
    /// Every page; the cost follows resident memory
    Scan,
}

/// Room for regions of each target where nobody said how many there may be: a small process has some fifteen pieces of
/// memory that are used differently, its libraries counted.
const REGIONS_EACH: usize = 20;

impl Monitoring {
    /// How many regions each target has room for in scans; 0 where the number of all was given.
    #[must_use]
    pub const fn regions_each(&self) -> usize {
        if self.max_regions.is_some() {
            0
        } else {
            REGIONS_EACH
        }
    }

    /// The interval of snapshots where scans go on.
    ///
    /// # Errors
    /// It is too short for anything to be scanned in it.
    pub fn snapshot_interval(&self) -> anyhow::Result<Nanos> {
        const LEAST: Nanos = Nanos::millis(50);
        ensure!(
            self.snapshot >= LEAST,
            "--snapshot {} is too short: the least is {LEAST}",
            self.snapshot
        );
        Ok(self.snapshot)
    }

    /// The attributes these flags say.
    ///
    /// # Errors
    /// They contradict each other.
    pub fn attrs(&self) -> anyhow::Result<Attrs> {
        let default = Attrs::default();
        let attrs = Attrs {
            sample: self.sample.unwrap_or(default.sample),
            aggr: self.aggr.unwrap_or(default.aggr),
            update: self.update,
            min_nr_regions: self.min_regions,
            max_nr_regions: self.max_regions.unwrap_or(default.max_nr_regions),
        };
        let attrs = self.tuned.begin_with(attrs, self.sample.is_some())?;
        attrs.check()?;
        Ok(attrs)
    }

    /// Parameters in a file work like command-line flags; names are those of the kernel modules.
    pub fn name(&mut self, named: &[String], attrs: &Attrs) {
        let is_named = |name: &str| named.iter().any(|one| one == name);
        if is_named("sample_interval") || is_named("aggr_interval") {
            (self.sample, self.aggr) = (Some(attrs.sample), Some(attrs.aggr));
        }
        if is_named("max_nr_regions") {
            self.max_regions = Some(attrs.max_nr_regions);
        }
    }

    /// Whether a budget or a way to look is asked for, which a tracker with a pace of its own does not keep.
    pub fn asks_for_budget(&self) -> bool {
        self.cpu.is_some() || self.method == MethodArg::Scan
    }

    /// What the intervals are tuned towards, if they are.
    ///
    /// # Errors
    /// A goal that is none.
    pub fn intervals_goal(&self) -> anyhow::Result<Option<IntervalsGoal>> {
        self.tuned.goal()
    }

    /// How long a walk that looks at shared memory may take, where the user consented to walks.
    ///
    /// # Errors
    /// No time at all.
    pub fn longest_walk(&self) -> anyhow::Result<Option<Nanos>> {
        ensure!(
            self.max_walk > Nanos::ZERO,
            "--max-walk 0 lets no walk begin: give a time like 100ms, or leave --shared out"
        );
        Ok(self.shared.then_some(self.max_walk))
    }

    /// The budget and what it may choose; none where the intervals are given by hand, or tuned towards a goal, and no
    /// budget is.
    ///
    /// # Errors
    /// A budget that is none, or things that exclude each other.
    pub fn budget(&self, tuned: bool) -> anyhow::Result<Option<(CpuShare, MethodPolicy)>> {
        let by_hand = self.sample.is_some() || self.aggr.is_some();
        if tuned {
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
            _ if by_hand => MethodPolicy::ByHand,
            MethodArg::Auto if self.shared => MethodPolicy::Scan,
            MethodArg::Auto => MethodPolicy::Auto,
            MethodArg::Sampling => MethodPolicy::Sampling,
            MethodArg::Scan => MethodPolicy::Scan,
        };
        let default = (!by_hand).then_some(DEFAULT_SHARE);
        let given = self.cpu.as_deref().map(cpu_share::parse).transpose();
        let given = given.map_err(|error| anyhow!("--cpu: {error}"))?;
        Ok(given.or(default).map(|share| (share, policy)))
    }

    /// A goal for intervals leaves nothing to a budget.
    fn no_budget(&self) -> anyhow::Result<Option<(CpuShare, MethodPolicy)>> {
        let other = match () {
            () if self.cpu.is_some() => "--cpu",
            () if self.method == MethodArg::Scan => "--method scan",
            () if self.shared => "--shared",
            () => return Ok(None),
        };
        bail!("intervals are tuned towards a goal, or chosen for {other}: leave one of the two out")
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
    fn what_a_file_changes_holds_like_flags() {
        let flags = || parsed::<Monitoring>(&[]);
        let attrs = flags().attrs().unwrap();
        let with = |name: &str| {
            let mut monitoring = flags();
            monitoring.name(&[name.to_owned()], &attrs);
            assert_eq!(monitoring.attrs().unwrap(), attrs);
            (monitoring.budget(false).unwrap(), monitoring.regions_each())
        };
        let ruled = Some((DEFAULT_SHARE, MethodPolicy::Auto));
        assert_eq!(with("quota_ms"), (ruled, REGIONS_EACH));
        assert_eq!(with("aggr_interval"), (None, REGIONS_EACH));
        assert_eq!(with("max_nr_regions"), (ruled, 0));
    }

    #[test]
    fn a_budget_rules_unless_intervals_are_given() {
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
                Some((half, MethodPolicy::ByHand)),
            ),
        ] {
            assert_eq!(budget(arguments).unwrap(), expected, "{arguments:?}");
        }
    }

    #[test]
    fn what_is_no_budget_names_its_flag() {
        for text in ["0", "-1%", "much"] {
            let error = budget(&["--cpu", text]).unwrap_err().to_string();
            assert!(error.starts_with("--cpu: "), "{error}");
        }
    }

    #[test]
    fn a_walk_takes_some_time() {
        let longest = |text: &str| parsed::<Monitoring>(&["--shared", "--max-walk", text]).longest_walk();
        assert_eq!(longest("5ms").unwrap(), Some(Nanos::millis(5)));
        assert!(longest("0").unwrap_err().to_string().contains("like 100ms"));
        assert_eq!(parsed::<Monitoring>(&[]).longest_walk().unwrap(), None);
    }

    #[test]
    fn shared_memory_is_looked_at_in_rounds() {
        let one_percent = Some((DEFAULT_SHARE, MethodPolicy::Scan));
        assert_eq!(budget(&["--shared"]).unwrap(), one_percent);
        for (first, second) in [("--sample", "1ms"), ("--aggr", "1s"), ("--method", "sampling")] {
            let error = budget(&["--shared", first, second]).unwrap_err();
            assert!(error.to_string().contains("--shared scans every page"), "{error}");
        }
    }

    #[test]
    fn a_goal_leaves_nothing_to_a_budget() {
        let tuned = |arguments: &[&str]| {
            let flags = [&["--intervals-autotune"], arguments].concat();
            parsed::<Monitoring>(&flags).budget(true)
        };
        assert_eq!(tuned(&[]).unwrap(), None);
        assert_eq!(tuned(&["--sample", "10ms", "--aggr", "1s"]).unwrap(), None);
        for (more, named) in [
            (&["--cpu", "1%"][..], "--cpu"),
            (&["--method", "scan"], "--method scan"),
            (&["--shared"], "--shared"),
        ] {
            let error = tuned(more).unwrap_err();
            assert!(
                error.to_string().contains(&format!("chosen for {named}:")),
                "{error}"
            );
        }
    }

    #[test]
    fn rounds_have_no_sampling_interval() {
        let error = budget(&["--method", "scan", "--sample", "1ms"]).unwrap_err();
        assert!(error.to_string().contains("--method sampling"), "{error}");
    }
}
