//! From parameters of a module to what the engine runs, through the same presets as the commands.

use rustix::io::Errno;
use thermo_actions::preset::{LruSort, Reclaim, Wmarks, monitor_region};
use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Attrs, Scheme};
use thermo_units::{Bytes, Nanos, Permille};

use super::Module;
use crate::engine::Settings;
use crate::staged::Staged;

/// What `parameters` of `module` mean.
///
/// # Errors
/// EINVAL: nothing that could be meant.
pub fn settings(module: Module, parameters: Staged<'_>) -> Result<Settings, Errno> {
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

fn attrs(parameters: Staged<'_>) -> Attrs {
    Attrs {
        sample: time(parameters, "sample_interval"),
        aggr: time(parameters, "aggr_interval"),
        min_nr_regions: count(parameters, "min_nr_regions"),
        max_nr_regions: count(parameters, "max_nr_regions"),
        ..Attrs::default()
    }
}

fn reclaim(parameters: Staged<'_>) -> Result<Scheme, Errno> {
    let preset = Reclaim {
        min_age: time(parameters, "min_age"),
        quota_ms: parameters.number("quota_ms"),
        quota_sz: Bytes(parameters.number("quota_sz")),
        quota_reset_interval_ms: parameters.number("quota_reset_interval_ms"),
        quota_mem_pressure_us: parameters.number("quota_mem_pressure_us"),
        quota_autotune_feedback: parameters.number("quota_autotune_feedback"),
        wmarks: wmarks(parameters),
        skip_anon: parameters.yes("skip_anon"),
    };
    let mut scheme = preset.scheme();
    let elsewhere = monitor_region(
        parameters.number("monitor_region_start"),
        parameters.number("monitor_region_end"),
    );
    scheme.filters.core.extend(elsewhere.map_err(|_| Errno::INVAL)?);
    Ok(scheme)
}

fn lru_sort(parameters: Staged<'_>) -> LruSort {
    LruSort {
        hot_thres_access_freq: share(parameters, "hot_thres_access_freq"),
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

fn wmarks(parameters: Staged<'_>) -> Wmarks {
    Wmarks {
        interval: time(parameters, "wmarks_interval"),
        high: share(parameters, "wmarks_high"),
        mid: share(parameters, "wmarks_mid"),
        low: share(parameters, "wmarks_low"),
    }
}

fn time(parameters: Staged<'_>, name: &str) -> Nanos {
    Nanos::micros(parameters.number(name))
}

fn count(parameters: Staged<'_>, name: &str) -> usize {
    usize::try_from(parameters.number(name)).unwrap_or(usize::MAX)
}

/// What does not fit is more than all, which is refused.
fn share(parameters: Staged<'_>, name: &str) -> Permille {
    Permille(u32::try_from(parameters.number(name)).unwrap_or(u32::MAX))
}
