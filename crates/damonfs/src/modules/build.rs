//! Builds the engine's settings from the parameters of a module, with the presets that the commands use.

use rustix::io::Errno;
use thermo_actions::preset::{LruSort, Reclaim, Wmarks, monitor_region};
use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Attrs, Scheme};
use thermo_units::{Bytes, Nanos, Permille};

use super::Module;
use crate::engine::Settings;
use crate::staged::StagedDir;

/// The settings for `parameters` of `module`.
///
/// # Errors
/// EINVAL: the parameters contradict each other.
pub fn settings(module: Module, parameters: StagedDir<'_>) -> Result<Settings, Errno> {
    match module {
        Module::Reclaim => Settings::checked(attrs(parameters), None, vec![reclaim(parameters)?]),
        Module::LruSort => {
            let preset = lru_sort(parameters);
            preset.check().map_err(|_| Errno::INVAL)?;
            Settings::checked(preset.attrs(), preset.intervals_goal(), preset.schemes().into())
        }
        Module::Stat => Settings::checked(Attrs::default(), Some(IntervalsGoal::default()), Vec::new()),
    }
}

fn attrs(parameters: StagedDir<'_>) -> Attrs {
    Attrs {
        sample: time(parameters, "sample_interval"),
        aggr: time(parameters, "aggr_interval"),
        min_nr_regions: count(parameters, "min_nr_regions"),
        max_nr_regions: count(parameters, "max_nr_regions"),
        ..Attrs::default()
    }
}

fn reclaim(parameters: StagedDir<'_>) -> Result<Scheme, Errno> {
    let preset = Reclaim {
        min_age: time(parameters, "min_age"),
        quota_ms: parameters.number("quota_ms"),
        quota_sz: Bytes(parameters.number("quota_sz")),
        quota_reset_interval_ms: parameters.number("quota_reset_interval_ms"),
        quota_mem_pressure_us: parameters.number("quota_mem_pressure_us"),
        quota_autotune_feedback: parameters.number("quota_autotune_feedback"),
        wmarks: wmarks(parameters),
        skip_anon: parameters.flag("skip_anon"),
        ..Reclaim::default()
    };
    let mut scheme = preset.scheme();
    let region_filter = monitor_region(
        parameters.number("monitor_region_start"),
        parameters.number("monitor_region_end"),
    );
    scheme
        .filters
        .core
        .extend(region_filter.map_err(|_| Errno::INVAL)?);
    Ok(scheme)
}

fn lru_sort(parameters: StagedDir<'_>) -> LruSort {
    LruSort {
        hot_thres_access_freq: permille(parameters, "hot_thres_access_freq"),
        cold_min_age: time(parameters, "cold_min_age"),
        quota_ms: parameters.number("quota_ms"),
        quota_reset_interval_ms: parameters.number("quota_reset_interval_ms"),
        wmarks: wmarks(parameters),
        sample_interval: time(parameters, "sample_interval"),
        aggr_interval: time(parameters, "aggr_interval"),
        min_nr_regions: count(parameters, "min_nr_regions"),
        max_nr_regions: count(parameters, "max_nr_regions"),
        monitor_region_start: parameters.number("monitor_region_start"),
        monitor_region_end: parameters.number("monitor_region_end"),
        ..LruSort::default()
    }
}

fn wmarks(parameters: StagedDir<'_>) -> Wmarks {
    Wmarks {
        interval: time(parameters, "wmarks_interval"),
        high: permille(parameters, "wmarks_high"),
        mid: permille(parameters, "wmarks_mid"),
        low: permille(parameters, "wmarks_low"),
    }
}

fn time(parameters: StagedDir<'_>, name: &str) -> Nanos {
    Nanos::micros(parameters.number(name))
}

fn count(parameters: StagedDir<'_>, name: &str) -> usize {
    usize::try_from(parameters.number(name)).unwrap_or(usize::MAX)
}

/// A share in permille. A number that does not fit becomes more than 1000, which the checks reject.
fn permille(parameters: StagedDir<'_>, name: &str) -> Permille {
    Permille(u32::try_from(parameters.number(name)).unwrap_or(u32::MAX))
}
