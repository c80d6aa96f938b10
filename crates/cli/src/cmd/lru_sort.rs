//! `thermo lru-sort`: proactive LRU sorting, the kernel module `DAMON_LRU_SORT` as a command.

use std::path::{Path, PathBuf};

use serde_json::json;
use thermo_actions::preset::{self, Wmarks};
use thermo_engine::scheme::SchemeStats;
use thermo_engine::{Action, Attrs};
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::{Nanos, Permille};

use crate::args::{Course, TargetsOrMachine};
use crate::parameter_file;
use crate::session::{Ending, Read, Settings, Tuning};

/// Move hot memory up and cold memory down on the kernel's LRU lists, so that reclaim finds the right pages.
///
/// Parameters have the names, units and defaults of the kernel module DAMON_LRU_SORT; docs/guide/lru-sort.md tells of
/// each. Nothing is paged out. By default it works only while 5 % to 15 % (once begun: 20 %) of memory is free.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo lru-sort --pid 4242 --cold-min-age 30s --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0
  thermo lru-sort --system --params lru-sort.toml    (kill -HUP takes changes of the file over)")]
pub struct LruSort {
    #[command(flatten)]
    targets: TargetsOrMachine,

    #[command(flatten)]
    module: Module,

    #[command(flatten)]
    course: Course,
}

/// The parameters of the module.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Parameters of DAMON_LRU_SORT")]
struct Module {
    /// A file of parameters by their names (TOML), which win over flags; read anew on SIGHUP
    #[arg(long, value_name = "FILE")]
    params: Option<PathBuf>,

    /// Hot is what at least this share of looks, in thousandths, find accessed
    #[arg(long, value_name = "PERMILLE", default_value_t = 500)]
    hot_thres_access_freq: u32,

    /// Cold is what was not touched for this long
    #[arg(long, value_name = "TIME", default_value = "120s")]
    cold_min_age: Nanos,

    /// CPU time to spend in a window, in milliseconds, half on hot, half on cold memory; 0: no limit
    #[arg(long, value_name = "MS", default_value_t = 10)]
    quota_ms: u64,

    /// Length of the window, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    quota_reset_interval_ms: u64,

    /// How often free memory is compared with the marks, while resting
    #[arg(long, value_name = "TIME", default_value = "5s")]
    wmarks_interval: Nanos,

    /// Rest above this much free memory, in thousandths
    #[arg(long, value_name = "PERMILLE", default_value_t = 200)]
    wmarks_high: u32,

    /// Begin at or below this much free memory, in thousandths
    #[arg(long, value_name = "PERMILLE", default_value_t = 150)]
    wmarks_mid: u32,

    /// Rest below this much free memory, in thousandths: the kernel's own reclaim is at work
    #[arg(long, value_name = "PERMILLE", default_value_t = 50)]
    wmarks_low: u32,

    /// Sort only what lies at or above this address of the targets (0x… or decimal)
    #[arg(long, value_name = "ADDR", default_value = "0", value_parser = address)]
    monitor_region_start: u64,

    /// Sort only what lies below this address; both 0: all
    #[arg(long, value_name = "ADDR", default_value = "0", value_parser = address)]
    monitor_region_end: u64,

    /// Share of LRU pages to bring to active lists, in ten-thousandths; 0: no such goal
    #[arg(long, value_name = "BP", default_value_t = 0)]
    active_mem_bp: u32,

    /// Tune the sampling and aggregation intervals to how much is accessed
    #[arg(long)]
    autotune_monitoring_intervals: bool,

    /// Look at each page again first: only touched ones go up, only untouched ones down
    #[arg(long)]
    filter_young_pages: bool,
}

fn address(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|why| format!("{why}: give an address, like 0x7f0000000000 or 4096"))
}

impl LruSort {
    /// Sorts until the time has passed or the targets are gone, then prints the module's statistics.
    pub fn run(mut self) -> anyhow::Result<Exit> {
        let targets = self.targets.checked()?;
        let attrs = self.course.monitoring.attrs()?;
        let as_json = self.course.json;
        let flags = self.module.preset(&attrs);
        let update = attrs.update;
        let (first, named) = settings(&flags, self.module.params.as_deref(), update)?;
        self.course.monitoring.name(&named, &first.attrs);
        let read = self
            .module
            .params
            .map(|file| -> Read { Box::new(move || Ok(settings(&flags, Some(&file), update)?.0)) });
        let plan = self.course.plan(targets, first.attrs, first.schemes);
        let done = plan.carry_out_tuned(Tuning {
            intervals_goal: first.intervals_goal,
            read,
        })?;
        let of = |action| {
            let found = done
                .outcome
                .sink
                .schemes
                .iter()
                .find(|total| total.action == action);
            found.map(|total| total.stats).unwrap_or_default()
        };
        tell(&of(Action::LruPrio), &of(Action::LruDeprio), as_json)?;
        let mut ending = Ending::of(done);
        ending.tell();
        ending.wait()
    }
}

/// What the flags say, except where the file says otherwise; with the names of what it says.
fn settings(
    flags: &preset::LruSort,
    file: Option<&Path>,
    update: Nanos,
) -> anyhow::Result<(Settings, Vec<String>)> {
    let mut preset = flags.clone();
    let mut named = Vec::new();
    if let Some(file) = file {
        parameter_file::read(file, |name, value| {
            named.push(name.to_owned());
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
    Ok((settings, named))
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

/// Prints the statistics by the module's names.
fn tell(hot: &SchemeStats, cold: &SchemeStats, as_json: bool) -> std::io::Result<()> {
    if as_json {
        return output::json(&json!({
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
        }));
    }
    let line = |name, stats: &SchemeStats| {
        format!(
            "{name}  tried {} in {} regions, sorted {} in {} regions; the quota was used up {} times\n",
            stats.sz_tried, stats.nr_tried, stats.sz_applied, stats.nr_applied, stats.qt_exceeds
        )
    };
    output::text(&(line("hot ", hot) + &line("cold", cold)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::args::{Monitoring, parsed};

    #[derive(clap::Args)]
    struct Both {
        #[command(flatten)]
        module: Module,
        #[command(flatten)]
        monitoring: Monitoring,
    }

    fn flags(flags: &[&str]) -> preset::LruSort {
        let Both { module, monitoring } = parsed(flags);
        module.preset(&monitoring.attrs().unwrap())
    }

    #[test]
    fn the_defaults_are_those_of_the_module() {
        assert_eq!(flags(&[]), preset::LruSort::default());
    }

    #[test]
    fn every_parameter_has_a_flag_of_its_name_that_sets_it() {
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
