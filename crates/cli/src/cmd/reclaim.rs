//! `thermo reclaim`: proactive reclaim, the kernel module `DAMON_RECLAIM` as a command.

use serde_json::json;
use thermo_actions::preset::{self, Wmarks};
use thermo_engine::scheme::SchemeStats;
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::{Bytes, Nanos, Permille};

use crate::args::{Course, TargetsOrMachine};
use crate::session::{Ending, Saving, Total, add_to_json};

/// Page out memory that has not been touched for long, within a quota, while memory is short.
///
/// Parameters have the names, units and defaults of the kernel module DAMON_RECLAIM.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo reclaim --pid 4242 --min-age 30s --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0
  thermo reclaim --system --duration 10m --dry-run")]
pub struct Reclaim {
    #[command(flatten)]
    targets: TargetsOrMachine,

    #[command(flatten)]
    module: Module,

    #[command(flatten)]
    course: Course,
}

/// The parameters of the module.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Parameters of DAMON_RECLAIM")]
struct Module {
    /// Page out what was not touched for this long
    #[arg(long, value_name = "TIME", default_value = "120s")]
    min_age: Nanos,

    /// CPU time to spend in a window, in milliseconds; 0: no limit
    #[arg(long, value_name = "MS", default_value_t = 10)]
    quota_ms: u64,

    /// Bytes to page out in a window; 0: no limit
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    quota_sz: Bytes,

    /// Length of the window, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    quota_reset_interval_ms: u64,

    /// Memory pressure to bring about, in microseconds of stall a window; 0: not by pressure
    #[arg(long, value_name = "US", default_value_t = 0)]
    quota_mem_pressure_us: u64,

    /// Your own feedback, of 10000 that are aimed at: less makes it page out more; 0: none
    #[arg(long, value_name = "SCORE", default_value_t = 0)]
    quota_autotune_feedback: u64,

    /// How often free memory is compared with the marks, while resting
    #[arg(long, value_name = "TIME", default_value = "5s")]
    wmarks_interval: Nanos,

    /// Rest above this much free memory, in thousandths
    #[arg(long, value_name = "PERMILLE", default_value_t = 500)]
    wmarks_high: u32,

    /// Begin at or below this much free memory, in thousandths
    #[arg(long, value_name = "PERMILLE", default_value_t = 400)]
    wmarks_mid: u32,

    /// Rest below this much free memory, in thousandths: the kernel's own reclaim is at work
    #[arg(long, value_name = "PERMILLE", default_value_t = 200)]
    wmarks_low: u32,

    /// Leave anonymous memory alone
    #[arg(long)]
    skip_anon: bool,
}

impl Reclaim {
    /// Reclaims until the time has passed or the targets are gone, then prints the module's statistics.
    pub fn run(self) -> anyhow::Result<Exit> {
        let targets = self.targets.checked()?;
        let preset = self.module.preset();
        preset.check()?;
        let (is_done, as_json) = (!self.course.limits.dry_run, self.course.json);
        let attrs = self.course.monitoring.attrs()?;
        let schemes = vec![preset.scheme()];
        let done = self.course.plan(targets, attrs, schemes).carry_out()?;
        let sink = &done.outcome.sink;
        if let Some(total) = sink.schemes.first() {
            tell(total, sink.saving.filter(|_| is_done), as_json)?;
        }
        let mut ending = Ending::of(done);
        ending.tell();
        ending.wait()
    }
}

impl Module {
    fn preset(&self) -> preset::Reclaim {
        preset::Reclaim {
            min_age: self.min_age,
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

/// Prints the statistics by the module's names.
fn tell(total: &Total, saving: Option<Saving>, as_json: bool) -> std::io::Result<()> {
    let stats = &total.stats;
    if as_json {
        let mut told = json!({
            "schema": 1,
            "nr_reclaim_tried_regions": stats.nr_tried,
            "bytes_reclaim_tried_regions": stats.sz_tried.0,
            "nr_reclaimed_regions": stats.nr_applied,
            "bytes_reclaimed_regions": stats.sz_applied.0,
            "nr_quota_exceeds": stats.qt_exceeds,
            "bytes_changed": stats.sz_changed.0,
            "skipped": total.skipped_json(),
        });
        add_to_json(&mut told, saving);
        return output::json(&told);
    }
    let SchemeStats {
        nr_tried,
        sz_tried,
        nr_applied,
        sz_applied,
        qt_exceeds,
        sz_changed,
        ..
    } = stats;
    output::text(&format!(
        "tried      {sz_tried} in {nr_tried} regions\n\
         reclaimed  {sz_applied} in {nr_applied} regions, of which {sz_changed} are seen to be out\n\
         the quota was used up {qt_exceeds} times\n{}{}",
        total.skipped_text("left alone "),
        saving.map(|saving| saving.text()).unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::args::parsed;

    #[test]
    fn the_defaults_are_those_of_the_module() {
        assert_eq!(parsed::<Module>(&[]).preset(), preset::Reclaim::default());
    }
}
