//! Access tables as rows for CSV and Parquet: one row per table, name and idle age with bytes.

use thermo_engine::access_tables::{AGE_EDGES_S, PageKind, UnknownReason};

use crate::model::{AccessTables, Snapshot, Target};

/// One cell of a target's access tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgeRow {
    pub time_ns: u64,
    pub target: u32,
    pub pid: Option<u32>,
    /// `sampling` or `scan`.
    pub method: &'static str,
    pub pass_ns: u64,
    pub nr_passes: u64,
    pub as_of_ns: u64,
    /// `idle`, `unknown` or `reaccessed`.
    pub table: &'static str,
    /// Kind of the pages for `idle`, the reason for `unknown`, empty for `reaccessed`.
    pub name: &'static str,
    /// Minimum idle age; `None` for `unknown`.
    pub min_age_s: Option<u64>,
    /// Upper limit of the idle age, exclusive; `None` for `unknown` and for the last bucket.
    pub max_age_s: Option<u64>,
    pub bytes: u64,
}

/// The rows of all targets in `snapshot`.
pub(super) fn rows(snapshot: &Snapshot) -> impl Iterator<Item = AgeRow> + '_ {
    snapshot
        .targets
        .iter()
        .filter_map(|target| Some((target, target.tables.as_deref()?)))
        .flat_map(|(target, tables)| target_rows(snapshot.time_ns, target, tables))
}

fn target_rows(time_ns: u64, target: &Target, tables: &AccessTables) -> Vec<AgeRow> {
    let row = |table, name, age: Option<usize>, bytes| AgeRow {
        time_ns,
        target: target.id,
        pid: target.pid,
        method: tables.method.name(),
        pass_ns: tables.pass.0,
        nr_passes: tables.nr_passes,
        as_of_ns: tables.as_of.0,
        table,
        name,
        min_age_s: age.and_then(|age| AGE_EDGES_S.get(age).copied()),
        max_age_s: age.and_then(|age| AGE_EDGES_S.get(age + 1).copied()),
        bytes,
    };
    let mut rows = Vec::new();
    for kind in PageKind::ALL {
        let ages = tables.idle.get(kind.index()).into_iter().flatten().enumerate();
        rows.extend(ages.map(|(age, bytes)| row("idle", kind.name(), Some(age), bytes.0)));
    }
    for reason in UnknownReason::ALL {
        rows.push(row(
            "unknown",
            reason.name(),
            None,
            tables.unknown.get(reason.index()).map_or(0, |bytes| bytes.0),
        ));
    }
    let ages = tables.reaccessed.iter().enumerate();
    rows.extend(ages.map(|(age, bytes)| row("reaccessed", "", Some(age), bytes.0)));
    rows.retain(|row| row.bytes > 0);
    rows
}
