//! `thermo lru-sort`: proactive LRU sorting, the kernel module `DAMON_LRU_SORT` as a command.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thermo_actions::preset::{self, Wmarks};
use thermo_engine::scheme::SchemeStats;
use thermo_engine::{Action, Attrs};
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::{Nanos, Permille};

use crate::args::{RunOpts, TargetsOrSystem, number};
use crate::parameter_file;
use crate::session::{ReadSettings, Settings, Teardown, Tuning};

/// Move hot memory up and cold memory down on the kernel's LRU lists, so that reclaim finds the right pages.
///
/// Parameters have the names, units and defaults of the kernel module DAMON_LRU_SORT; docs/guide/lru-sort.md
/// describes them. Nothing is paged out. By default it is active only while 5 % to 15 % (once active: to 20
/// %) of memory is free.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo lru-sort --pid 4242 --cold-min-age 30s --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0
  thermo lru-sort --system --params lru-sort.toml    (kill -HUP makes it read the file again)")]
pub struct LruSort {
    #[command(flatten)]
    targets: TargetsOrSystem,

    #[command(flatten)]
    module: Module,

    #[command(flatten)]
    run: RunOpts,
}

/// The parameters of the module.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Parameters of DAMON_LRU_SORT")]
struct Module {
    /// A file of parameters by their names (TOML); they override flags. SIGHUP makes thermo read it again
    #[arg(long, value_name = "FILE")]
    params: Option<PathBuf>,

    /// Memory is hot if at least this share of access checks, in thousandths, finds it accessed
    #[arg(long, value_name = "PERMILLE", value_parser = number::whole::<u32>, default_value = "500")]
    hot_thres_access_freq: u32,

    /// Memory is cold if it was not accessed for this long
    #[arg(long, value_name = "TIME", default_value = "120s")]
    cold_min_age: Nanos,

    /// CPU time for sorting in each quota window, in milliseconds, half for hot and half for cold memory; 0:
    /// no limit
    #[arg(long, value_name = "MS", value_parser = number::whole::<u64>, default_value = "10")]
    quota_ms: u64,

    /// Length of the quota window, in milliseconds
    #[arg(long, value_name = "MS", value_parser = number::whole::<u64>, default_value = "1000")]
    quota_reset_interval_ms: u64,

    /// Time between two checks of free memory, while inactive
    #[arg(long, value_name = "TIME", default_value = "5s")]
    wmarks_interval: Nanos,

    /// Deactivate above this much free memory, in thousandths
    #[arg(long, value_name = "PERMILLE", value_parser = number::whole::<u32>, default_value = "200")]
    wmarks_high: u32,

    /// Activate at or below this much free memory, in thousandths
    #[arg(long, value_name = "PERMILLE", value_parser = number::whole::<u32>, default_value = "150")]
    wmarks_mid: u32,

    /// Deactivate below this much free memory, in thousandths: there the kernel's own reclaim is active
    #[arg(long, value_name = "PERMILLE", value_parser = number::whole::<u32>, default_value = "50")]
    wmarks_low: u32,

    /// Sort only memory at or above this virtual address of the targets (0x... or decimal)
    #[arg(long, value_name = "ADDR", default_value = "0", value_parser = address)]
    monitor_region_start: u64,

    /// Sort only memory below this virtual address; both 0: all memory
    #[arg(long, value_name = "ADDR", default_value = "0", value_parser = address)]
    monitor_region_end: u64,

    /// Goal for the share of LRU pages that are on active lists, in basis points; 0: no goal
    #[arg(long, value_name = "BP", value_parser = number::whole::<u32>, default_value = "0")]
    active_mem_bp: u32,

    /// Tune the sampling and aggregation intervals to the number of accesses found
    #[arg(long)]
    autotune_monitoring_intervals: bool,

    /// Check each page again before it is moved: only accessed pages go up, only idle pages go down
    #[arg(long)]
    filter_young_pages: bool,
}

fn address(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "give an address of up to 64 bits, like 0x7f0000000000 or 4096".to_owned())
}

impl LruSort {
    /// Sorts until the duration has passed or the targets have ended, then prints the module's statistics.
    pub fn run(mut self) -> anyhow::Result<Exit> {
        let targets = self.targets.checked()?;
        let attrs = self.run.monitoring.attrs()?;
        let as_json = self.run.json;
        let flags = self.module.preset(&attrs);
        let update = attrs.update;
        let (first, names) = settings(&flags, self.module.params.as_deref(), update)?;
        self.run.monitoring.set_from_file(&names, &first.attrs);
        let read = self
            .module
            .params
            .map(|file| -> ReadSettings { Box::new(move || Ok(settings(&flags, Some(&file), update)?.0)) });
        let plan = self.run.plan(targets, first.attrs, first.schemes);
        let done = plan.run_tuned(Tuning {
            intervals_goal: first.intervals_goal,
            read,
        })?;
        let stats_of = |action| {
            let mut schemes = done.outcome.sink.schemes.iter();
            let found = schemes.find(|total| total.action == action);
            found.map(|total| total.stats).unwrap_or_default()
        };
        let (hot, cold) = (stats_of(Action::LruPrio), stats_of(Action::LruDeprio));
        if as_json {
            output::json(&totals_json(&hot, &cold))?;
        } else {
            output::text(&(done.outcome.heading() + &totals_text(&hot, &cold)))?;
        }
        let mut teardown = Teardown::new(done);
        teardown.report();
        teardown.wait()
    }
}

/// The settings of the flags, overridden by those of the file; and the names of the parameters that the file
/// sets.
fn settings(
    flags: &preset::LruSort,
    file: Option<&Path>,
    update: Nanos,
) -> anyhow::Result<(Settings, Vec<String>)> {
    let mut preset = flags.clone();
    let mut names = Vec::new();
    if let Some(file) = file {
        parameter_file::read(file, |name, value| {
            names.push(name.to_owned());
            preset.set(name, value)
        })?;
    }
    preset.check()?;
    let settings = Settings {
        attrs: Attrs {
            update,
            ..preset.attrs()
        },
        intervals_goal: preset.intervals_goal(),
        schemes: preset.schemes().into(),
    };
    Ok((settings, names))
}

impl Module {
    fn preset(&self, attrs: &Attrs) -> preset::LruSort {
        preset::LruSort {
            hot_thres_access_freq: Permille(self.hot_thres_access_freq),
            cold_min_age: self.cold_min_age,
            quota_ms: self.quota_ms,
            quota_reset_interval_ms: self.quota_reset_interval_ms,
            wmarks: Wmarks {
                interval: self.wmarks_interval,
                high: Permille(self.wmarks_high),
                mid: Permille(self.wmarks_mid),
                low: Permille(self.wmarks_low),
            },
            sample_interval: attrs.sample,
            aggr_interval: attrs.aggr,
            min_nr_regions: attrs.min_nr_regions,
            max_nr_regions: attrs.max_nr_regions,
            monitor_region_start: self.monitor_region_start,
            monitor_region_end: self.monitor_region_end,
            active_mem_bp: self.active_mem_bp,
            autotune_monitoring_intervals: self.autotune_monitoring_intervals,
            filter_young_pages: self.filter_young_pages,
        }
    }
}

/// The statistics, by the module's names.
fn totals_json(hot: &SchemeStats, cold: &SchemeStats) -> Value {
    json!({
        "schema": 1,
        "nr_lru_sort_tried_hot_regions": hot.nr_tried,
        "bytes_lru_sort_tried_hot_regions": hot.sz_tried.0,
        "nr_lru_sorted_hot_regions": hot.nr_applied,
        "bytes_lru_sorted_hot_regions": hot.sz_applied.0,
        "nr_hot_quota_exceeds": hot.qt_exceeds,
        "nr_lru_sort_tried_cold_regions": cold.nr_tried,
        "bytes_lru_sort_tried_cold_regions": cold.sz_tried.0,
        "nr_lru_sorted_cold_regions": cold.nr_applied,
        "bytes_lru_sorted_cold_regions": cold.sz_applied.0,
        "nr_cold_quota_exceeds": cold.qt_exceeds,
    })
}

fn totals_text(hot: &SchemeStats, cold: &SchemeStats) -> String {
    let line = |name, stats: &SchemeStats| {
        format!(
            "{name}  tried {} in {} regions, sorted {} in {} regions; quota used up in {} windows\n",
            stats.sz_tried, stats.nr_tried, stats.sz_applied, stats.nr_applied, stats.qt_exceeds
        )
    };
    line("hot ", hot) + &line("cold", cold)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::args::{Monitoring, parsed};

    #[derive(clap::Args)]
    struct AllFlags {
        #[command(flatten)]
        module: Module,
        #[command(flatten)]
        monitoring: Monitoring,
    }

    fn flags(flags: &[&str]) -> preset::LruSort {
        let AllFlags { module, monitoring } = parsed(flags);
        module.preset(&monitoring.attrs().unwrap())
    }

    #[test]
    fn defaults_are_those_of_the_module() {
        assert_eq!(flags(&[]), preset::LruSort::default());
    }

    #[test]
    fn address_names_what_is_expected() {
        assert_eq!((address("0x1000"), address("4096")), (Ok(4096), Ok(4096)));
        for wrong in ["abc", "0xg", "", "0x10000000000000000"] {
            assert!(address(wrong).unwrap_err().contains("give an address"), "{wrong}");
        }
    }

    #[test]
    fn every_parameter_has_its_flag() {
        for name in preset::LruSort::PARAMETERS {
            let flag = format!("--{}", name.replace('_', "-"));
            let is_switch = name.starts_with("autotune") || name.starts_with("filter");
            let value = match name {
                "cold_min_age" | "wmarks_interval" => "7s",
                "sample_interval" | "aggr_interval" => "10ms",
                _ => "77",
            };
            let given = [&*flag, value];
            let by_flag = flags(&given[..if is_switch { 1 } else { 2 }]);
            let mut by_name = preset::LruSort::default();
            by_name.set(name, if is_switch { "Y" } else { value }).unwrap();
            assert_eq!(by_flag, by_name, "{name}");
            assert_ne!(by_flag, preset::LruSort::default(), "{name}");
        }
    }
}
