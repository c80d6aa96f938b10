//! From rows of numbers to what the engine runs. All that can be wrong with them is EINVAL.

use rustix::io::Errno;
use thermo_engine::scheme::{Quota, Watermarks, Weights};
use thermo_engine::{Action, Attrs, Scheme};
use thermo_units::{Bytes, Nanos};

use crate::engine::{self, Built, Rule, Settings, StagedTarget, Watch};
use crate::staged::Staged;
use crate::table::EARLY_SCHEME;

/// What the numbers of actions mean.
const ACTIONS: [Action; 6] = [
    Action::Willneed,
    Action::Cold,
    Action::Pageout,
    Action::Hugepage,
    Action::Nohugepage,
    Action::Stat,
];

/// Builds what is staged in `context`.
pub fn build(context: Staged<'_>) -> Result<Built, Errno> {
    let pids = pids(context.text("target_ids"));
    if pids.is_empty() {
        return Err(Errno::INVAL);
    }
    let regions = context.rows("init_regions");
    let targets = pids.into_iter().zip(0..).map(|(pid, nth)| {
        Ok(StagedTarget {
            process: engine::target(nth, pid)?,
            ranges: engine::aligned(of_target(regions, u64::from(nth)))?,
        })
    });
    let targets = targets.collect::<Result<Vec<_>, Errno>>()?;
    let row = context.rows("attrs").first().ok_or(Errno::INVAL)?;
    let schemes = context.rows("schemes").iter().map(|row| scheme(row));
    let schemes = schemes.collect::<Result<_, _>>()?;
    Ok(Built {
        settings: Settings::checked(attrs(row)?, None, schemes)?,
        watch: Watch::Staged(Rule::Mappings, targets),
    })
}

/// Numbers of processes as they were staged.
pub fn pids(text: &str) -> Vec<u32> {
    let numbers = text.split_ascii_whitespace().map(str::parse);
    numbers.map_while(Result::ok).collect()
}

/// The attributes that a row means.
pub fn attrs(row: &[u64]) -> Result<Attrs, Errno> {
    let &[sample, aggr, update, min, max] = row else {
        return Err(Errno::INVAL);
    };
    // The kernel takes 0 and divides by 1 instead.
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

/// Whether `rows` are regions of that many targets: each something, behind the one before of its target.
pub fn check_regions(rows: &[Vec<u64>], nr_targets: usize) -> Result<(), Errno> {
    let known = |row: &Vec<u64>| usize::try_from(row[0]).is_ok_and(|nth| nth < nr_targets);
    if !rows.iter().all(|row| known(row) && row[1] < row[2]) {
        return Err(Errno::INVAL);
    }
    (0..nr_targets as u64).try_for_each(|nth| engine::aligned(of_target(rows, nth)).map(drop))
}

fn of_target(rows: &[Vec<u64>], nth: u64) -> impl Iterator<Item = (u64, u64)> {
    let rows = rows.iter().filter(move |row| row[0] == nth);
    rows.map(|row| (row[1], row[2]))
}

/// A row of the first patches as one with neither quota nor watermarks.
pub fn completed(mut row: Vec<u64>) -> Vec<u64> {
    row.resize(EARLY_SCHEME, 0);
    row
}

/// The scheme that a row means.
pub fn scheme(row: &[u64]) -> Result<Scheme, Errno> {
    let row: [u64; EARLY_SCHEME] = row.try_into().map_err(|_| Errno::INVAL)?;
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
            engine::free_memory_marks(Nanos::micros(interval), [high, mid, low])
        },
        ..Scheme::new(action)
    })
}
