//! `thermo reclaim`: proactive reclaim, the kernel module `DAMON_RECLAIM` as a command.

use serde_json::{Value, json};
use thermo_actions::preset::{self, Wmarks};
use thermo_engine::scheme::{AutoAge, SchemeStats};
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::{Bytes, Nanos, Permille, SharePerMinute};

use crate::args::{RunOpts, TargetsOrSystem, number};
use crate::session::{NetSavings, SchemeTotal, Teardown, add_savings_to_json};

/// Page out memory that has been idle for long, within a quota.
///
/// Parameters have the names, units and defaults of the kernel module DAMON_RECLAIM. By default it is active
/// only while 20 % to 40 % (once active: to 50 %) of memory is free.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo reclaim --pid 4242 --min-age 30s --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0
  thermo reclaim --pid 4242 --auto
  thermo reclaim --system --duration 10m --dry-run")]
pub struct Reclaim {
    #[command(flatten)]
    targets: TargetsOrSystem,

    #[command(flatten)]
    module: Module,

    #[command(flatten)]
    run: RunOpts,
}

/// The parameters of the module.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Parameters of DAMON_RECLAIM")]
struct Module {
    /// Page out memory that was not accessed for this long
    #[arg(long, value_name = "TIME", default_value = "120s")]
    min_age: Nanos,

    /// Choose the minimum age each minute: as small as re-accesses within BOUND allow. BOUND is a share of
    /// the working set a minute, by default 0.2%/min. Nothing is paged out in the first 3 minutes of a target
    #[arg(
        long,
        value_name = "BOUND",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0.2%/min",
        conflicts_with = "min_age"
    )]
    auto: Option<SharePerMinute>,

    /// CPU time for paging out in each quota window, in milliseconds; 0: no limit
    #[arg(long, value_name = "MS", value_parser = number::whole::<u64>, default_value = "10")]
    quota_ms: u64,

    /// Bytes to page out in each quota window; 0: no limit
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    quota_sz: Bytes,

    /// Length of the quota window, in milliseconds
    #[arg(long, value_name = "MS", value_parser = number::whole::<u64>, default_value = "1000")]
    quota_reset_interval_ms: u64,

    /// Tune the quota to this memory pressure: microseconds of stall (PSI) in each quota window; 0: do not
    #[arg(long, value_name = "US", value_parser = number::whole::<u64>, default_value = "0")]
    quota_mem_pressure_us: u64,

    /// Tune the quota to your own score; the goal is 10000, and less makes it page out more; 0: do not
    #[arg(long, value_name = "SCORE", value_parser = number::whole::<u64>, default_value = "0")]
    quota_autotune_feedback: u64,

    /// Time between two checks of free memory, while inactive
    #[arg(long, value_name = "TIME", default_value = "5s")]
    wmarks_interval: Nanos,

    /// Deactivate above this much free memory, in thousandths
    #[arg(long, value_name = "PERMILLE", value_parser = number::whole::<u32>, default_value = "500")]
    wmarks_high: u32,

    /// Activate at or below this much free memory, in thousandths
    #[arg(long, value_name = "PERMILLE", value_parser = number::whole::<u32>, default_value = "400")]
    wmarks_mid: u32,

    /// Deactivate below this much free memory, in thousandths: there the kernel's own reclaim is active
    #[arg(long, value_name = "PERMILLE", value_parser = number::whole::<u32>, default_value = "200")]
    wmarks_low: u32,

    /// Do not page out anonymous memory
    #[arg(long)]
    skip_anon: bool,
}

impl Reclaim {
    /// Reclaims until the duration has passed or the targets have ended, then prints the module's statistics.
    pub fn run(self) -> anyhow::Result<Exit> {
        let targets = self.targets.checked()?;
        let preset = self.module.preset();
        preset.check()?;
        let (changes_memory, as_json) = (!self.run.limits.dry_run, self.run.json);
        let attrs = self.run.monitoring.attrs()?;
        let schemes = vec![preset.scheme()];
        let done = self.run.plan(targets, attrs, schemes).run()?;
        let sink = &done.outcome.sink;
        if let Some(total) = sink.schemes.first() {
            let savings = sink.savings.filter(|_| changes_memory);
            if as_json {
                output::json(&totals_json(total, savings))?;
            } else {
                output::text(&(done.outcome.heading() + &totals_text(total, savings)))?;
            }
        }
        let mut teardown = Teardown::new(done);
        teardown.report();
        teardown.wait()
    }
}

impl Module {
    fn preset(&self) -> preset::Reclaim {
        preset::Reclaim {
            min_age: self.min_age,
            auto_age: self.auto.map(|max_refaults| AutoAge { max_refaults }),
            quota_ms: self.quota_ms,
            quota_sz: self.quota_sz,
            quota_reset_interval_ms: self.quota_reset_interval_ms,
            quota_mem_pressure_us: self.quota_mem_pressure_us,
            quota_autotune_feedback: self.quota_autotune_feedback,
            wmarks: Wmarks {
                interval: self.wmarks_interval,
                high: Permille(self.wmarks_high),
                mid: Permille(self.wmarks_mid),
                low: Permille(self.wmarks_low),
            },
            skip_anon: self.skip_anon,
        }
    }
}

/// The statistics, by the module's names.
fn totals_json(total: &SchemeTotal, savings: Option<NetSavings>) -> Value {
    let stats = &total.stats;
    let mut object = json!({
        "schema": 1,
        "nr_reclaim_tried_regions": stats.nr_tried,
        "bytes_reclaim_tried_regions": stats.sz_tried.0,
        "nr_reclaimed_regions": stats.nr_applied,
        "bytes_reclaimed_regions": stats.sz_applied.0,
        "nr_quota_exceeds": stats.qt_exceeds,
        "bytes_changed": stats.sz_changed.0,
        "skipped": total.skipped_json(),
    });
    add_savings_to_json(&mut object, savings);
    object
}

fn totals_text(total: &SchemeTotal, savings: Option<NetSavings>) -> String {
    let SchemeStats {
        nr_tried,
        sz_tried,
        nr_applied,
        sz_applied,
        qt_exceeds,
        sz_changed,
        ..
    } = &total.stats;
    format!(
        "tried      {sz_tried} in {nr_tried} regions\n\
         reclaimed  {sz_applied} in {nr_applied} regions, {sz_changed} verified as paged out\n\
         quota      used up in {qt_exceeds} windows\n{}{}",
        total.skipped_text("skipped    "),
        savings.map(|savings| savings.text()).unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::args::parsed;
    use thermo_engine::ops::Skip;

    #[test]
    fn defaults_are_those_of_the_module() {
        assert_eq!(parsed::<Module>(&[]).preset(), preset::Reclaim::default());
    }

    #[test]
    fn automatic_age_has_a_default_bound() {
        let bound = |args: &[&str]| {
            parsed::<Module>(args)
                .preset()
                .auto_age
                .map(|auto| auto.max_refaults)
        };
        assert_eq!(bound(&["--auto"]), Some(AutoAge::default().max_refaults));
        assert_eq!(bound(&["--auto=0.5%/min"]), Some(SharePerMinute(5000)));
        assert_eq!(bound(&[]), None);
    }

    #[test]
    fn every_row_of_the_totals_has_a_label() {
        let mut total = SchemeTotal::new(&preset::Reclaim::default().scheme());
        total.stats.sz_changed = Bytes::mib(3);
        total.skipped.insert(Skip::Young, Bytes::mib(2));
        let text = totals_text(&total, None);
        for row in [
            "tried      ",
            "reclaimed  ",
            "quota      ",
            "skipped    2.00 MiB: young",
        ] {
            assert!(text.contains(row), "{row:?}: {text}");
        }
        assert!(text.contains("3.00 MiB verified as paged out"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
