//! The past of the made-up programs.

use serde_json::{Value, json};
use thermo_agent::api::{AgeBytes, Heatmap, HeatmapRow, Period, Point, Refusal, SCHEMA, Series, UnixMillis};

use crate::profile::{AGE_EDGES_S, PROFILES, Profile, sum_of_kinds};
use crate::state::State;

const HOUR_MS: u64 = 3_600_000;
/// First address of a program's memory.
const BASE: u64 = 0x5555_0000_0000;

fn find(period: &Period) -> Result<&'static Profile, Refusal> {
    let named = |profile: &&Profile| {
        profile.name == period.target
            && period
                .policy
                .as_deref()
                .is_none_or(|policy| policy == profile.policy)
    };
    PROFILES.iter().find(named).ok_or_else(|| {
        Refusal::NotFound(format!(
            "there is no target {:?}: GET /api/v1/targets lists them",
            period.target
        ))
    })
}

/// Begin of each of at most `columns` columns, each at least a second long, and the length of one.
fn columns(state: &State, period: &Period) -> Result<(Vec<UnixMillis>, u64), Refusal> {
    let to = period.to_ms.unwrap_or_else(|| state.now_ms());
    let from = period.from_ms.unwrap_or(to.saturating_sub(HOUR_MS));
    if from >= to {
        return Err(Refusal::Invalid(format!(
            "from_ms={from} is not before to_ms={to}: give an earlier begin"
        )));
    }
    let length = ((to - from) / period.columns.max(1) as u64).max(1000);
    let count = ((to - from) / length).max(1);
    Ok(((0..count).map(|column| from + column * length).collect(), length))
}

pub(crate) fn history(state: &State, period: &Period) -> Result<Series, Refusal> {
    let profile = find(period)?;
    let (times, _) = columns(state, period)?;
    let point = |time_ms| {
        let ago_s = state.now_ms().saturating_sub(time_ms) / 1000;
        let swap_bytes = profile.paged_out(state.acting_s(profile).saturating_sub(ago_s));
        let ages = sum_of_kinds(&profile.kinds(time_ms, swap_bytes));
        Point {
            time_ms,
            resident_bytes: ages.iter().map(|age| age.bytes).sum::<u64>() + (profile.size_mib << 12),
            swap_bytes,
            ages,
        }
    };
    Ok(Series {
        schema: SCHEMA,
        points: times.into_iter().map(point).collect(),
    })
}

pub(crate) fn heatmap(state: &State, period: &Period) -> Result<Heatmap, Refusal> {
    let profile = find(period)?;
    let (times_ms, _) = columns(state, period)?;
    let rows = period.rows.max(1);
    let row_bytes = (profile.size_mib << 20)
        .div_ceil(rows as u64)
        .next_multiple_of(4096);
    let row = |row: usize| {
        let start = BASE + row as u64 * row_bytes;
        let place = row as f64 / rows as f64;
        let name = if place < 0.1 { profile.name } else { "[heap]" };
        HeatmapRow {
            pid: profile.pids[row * profile.pids.len() / rows],
            start: format!("{start:#x}"),
            end: format!("{:#x}", start + row_bytes),
            name: name.to_owned(),
            heat: times_ms.iter().map(|time| profile.heat(place, *time)).collect(),
        }
    };
    Ok(Heatmap {
        schema: SCHEMA,
        rows: (0..rows).map(row).collect(),
        times_ms,
    })
}

/// What `thermo advise --json` would print.
pub(crate) fn advice(state: &State, period: &Period) -> Result<Value, Refusal> {
    let profile = find(period)?;
    let (times, length) = columns(state, period)?;
    let ages = sum_of_kinds(&profile.kinds(state.now_ms(), 0));
    let back = profile.reaccess(60);
    let table: Vec<Value> = (3..AGE_EDGES_S.len())
        .map(|age| advice_row(&ages, &back, age))
        .collect();
    Ok(json!({
        "schema": 1,
        "watched_s": times.len() as u64 * length / 1000,
        "resident_bytes": ages.iter().map(|age| age.bytes).sum::<u64>(),
        "unknown_bytes": profile.size_mib << 12,
        "ages": ages,
        "advice": {
            "worth": true,
            "min_age_s": 300,
            "net_saved_bytes": advice_row(&ages, &back, 8)["net_saved_bytes"],
            "why": "the refault rate stays below 0.2 % of the working set a minute",
            "scheme": null,
            "command": "thermo reclaim --min-age 5min",
        },
        "table": table,
        "swap": null,
        "content_sampled": false,
        "costs": {"out_ns": 9000, "in_ns": 5000, "wait_ns": 8000},
        "notes": ["the figures are made up"],
    }))
}

/// What a minimum age would save and cost.
fn advice_row(ages: &[AgeBytes], back: &[AgeBytes], age: usize) -> Value {
    let range = |mid: f64| json!({"low": mid * 0.9, "mid": mid, "high": mid * 1.1});
    let working_set: u64 = ages
        .iter()
        .filter(|age| age.min_s < 60)
        .map(|age| age.bytes)
        .sum();
    let leaves: u64 = ages.iter().skip(age).map(|age| age.bytes).sum();
    let refaults: u64 = back.iter().skip(age).map(|age| age.bytes).sum();
    let (leaving, refaults) = (leaves as f64, refaults as f64);
    json!({
        "min_age_s": AGE_EDGES_S[age],
        "known": true,
        "leaves_bytes": leaves,
        "leaves_range_bytes": {"low": leaves / 10 * 9, "mid": leaves, "high": leaves / 10 * 11},
        "leaves_file_bytes": leaves / 5,
        "compressed_bytes": range(leaving * 0.8 / 3.0),
        "net_saved_bytes": range(leaving * (1.0 - 0.8 / 3.0)),
        "refault_bytes_per_min": range(refaults),
        "share_per_min": range(refaults / working_set.max(1) as f64),
        "cpu_share": range(refaults / 4096.0 * 5e-6 / 60.0),
        "wait_ms_per_min": range(refaults / 4096.0 * 0.008),
    })
}
