//! Builds the engine's configuration from rows of numbers. Every error is EINVAL.

use rustix::io::Errno;
use thermo_engine::scheme::{Quota, Watermarks, Weights};
use thermo_engine::{Action, Attrs, Scheme};
use thermo_units::{Bytes, Nanos};

use crate::engine::{self, ContextConfig, RangeSource, Settings, StagedTarget, TargetSelection};
use crate::staged::StagedDir;
use crate::table::SCHEME_FIELDS;

/// Actions by their number in the file `schemes`.
const ACTIONS: [Action; 6] = [
    Action::Willneed,
    Action::Cold,
    Action::Pageout,
    Action::Hugepage,
    Action::Nohugepage,
    Action::Stat,
];

/// Builds the configuration staged in `context`.
pub fn build(context: StagedDir<'_>) -> Result<ContextConfig, Errno> {
    let pids = pids(context.text("target_ids"));
    if pids.is_empty() {
        return Err(Errno::INVAL);
    }
    let regions = context.rows("init_regions");
    let targets = pids.into_iter().zip(0..).map(|(pid, nth)| {
        Ok(StagedTarget {
            process: engine::open_target(nth, pid)?,
            ranges: engine::page_aligned(regions_of(regions, u64::from(nth)))?,
        })
    });
    let targets = targets.collect::<Result<Vec<_>, Errno>>()?;
    let row = context.rows("attrs").first().ok_or(Errno::INVAL)?;
    let schemes = context.rows("schemes").iter().map(|row| scheme(row));
    let schemes = schemes.collect::<Result<_, _>>()?;
    Ok(ContextConfig {
        settings: Settings::checked(attrs(row)?, None, schemes)?,
        targets: TargetSelection::Staged(RangeSource::Mappings, targets),
    })
}

/// The process ids at the start of `text`, up to the first word that is not a number.
pub fn pids(text: &str) -> Vec<u32> {
    let numbers = text.split_ascii_whitespace().map(str::parse);
    numbers.map_while(Result::ok).collect()
}

/// Parses a row of the file `attrs`.
pub fn attrs(row: &[u64]) -> Result<Attrs, Errno> {
    let &[sample, aggr, update, min, max] = row else {
        return Err(Errno::INVAL);
    };
    // The kernel accepts 0 and divides by 1 instead.
    let time = |micros: u64| Nanos::micros(micros.max(1));
    let count = |number| usize::try_from(number).unwrap_or(usize::MAX);
    let attrs = Attrs {
        sample: time(sample),
        aggr: time(aggr),
        update: time(update),
        min_nr_regions: count(min),
        max_nr_regions: count(max),
    };
    attrs.check().map_err(|_| Errno::INVAL)?;
    Ok(attrs)
}

/// Checks rows of `init_regions`: targets exist, regions are not empty, and the regions of a target ascend
/// without overlap.
pub fn check_regions(rows: &[Vec<u64>], nr_targets: usize) -> Result<(), Errno> {
    let is_valid = |row: &Vec<u64>| match row[..] {
        [target, start, end] => usize::try_from(target).is_ok_and(|nth| nth < nr_targets) && start < end,
        _ => false,
    };
    if !rows.iter().all(is_valid) {
        return Err(Errno::INVAL);
    }
    (0..nr_targets as u64).try_for_each(|nth| engine::page_aligned(regions_of(rows, nth)).map(drop))
}

/// Start and end of the regions of target `nth`.
fn regions_of(rows: &[Vec<u64>], nth: u64) -> impl Iterator<Item = (u64, u64)> {
    rows.iter().filter_map(move |row| match row[..] {
        [target, start, end] if target == nth => Some((start, end)),
        _ => None,
    })
}

/// Extends a short row to a full row without quota and watermarks.
pub fn pad_scheme_row(mut row: Vec<u64>) -> Vec<u64> {
    row.resize(SCHEME_FIELDS, 0);
    row
}

/// Parses a full row of the file `schemes`.
pub fn scheme(row: &[u64]) -> Result<Scheme, Errno> {
    let row: [u64; SCHEME_FIELDS] = row.try_into().map_err(|_| Errno::INVAL)?;
    let [
        min_sz,
        max_sz,
        min_rate,
        max_rate,
        min_age,
        max_age,
        action,
        rest @ ..,
    ] = row;
    let [
        ms,
        sz,
        reset,
        w_sz,
        w_rate,
        w_age,
        metric,
        interval,
        high,
        mid,
        low,
    ] = rest;
    let ordered = min_sz <= max_sz && min_rate <= max_rate && min_age <= max_age;
    let action = usize::try_from(action).ok().and_then(|nth| ACTIONS.get(nth));
    let action = *action.ok_or(Errno::INVAL)?;
    if !ordered || high < mid || mid < low || metric > 1 {
        return Err(Errno::INVAL);
    }
    Ok(Scheme {
        pattern: engine::pattern((min_sz, max_sz), (min_rate, max_rate), (min_age, max_age)),
        quota: Quota {
            time: engine::millis(ms),
            sz: Bytes(sz),
            reset_interval: engine::millis(reset),
            weights: Weights {
                sz: engine::weight(w_sz),
                nr_accesses: engine::weight(w_rate),
                age: engine::weight(w_age),
            },
            ..Quota::default()
        },
        watermarks: if metric == 0 {
            Watermarks::default()
        } else {
            engine::free_memory_watermarks(Nanos::micros(interval), [high, mid, low])
        },
        ..Scheme::new(action)
    })
}
