//! Reads damo's records: JSON with one list of snapshots per target. The whole file is read into memory and
//! sorted by time.

mod json;
mod quantity;

use std::io::Read;
use std::path::Path;

use crate::error::ReadError;
use crate::model::{Metadata, Record, Region, SCHEMA, Settings, Snapshot, Target};
use json::{Intervals, TargetRecord, TimedRegions};

/// damo's default sampling, aggregation and update intervals in ns, for files without intervals.
const DEFAULT_INTERVALS: (u64, u64, u64) = (5_000_000, 100_000_000, 1_000_000_000);

/// Reads damo's JSON from `input`. `path` is for errors.
pub(crate) fn read(path: &Path, input: impl Read) -> Result<(Metadata, Vec<Record>), ReadError> {
    let mut parser = serde_json::Deserializer::from_reader(input);
    let parsed =
        serde::Deserialize::deserialize(&mut parser).and_then(|targets| parser.end().map(|()| targets));
    let targets: Vec<TargetRecord> = parsed.map_err(|error| json_error(path, &error))?;
    let metadata = metadata(&targets);
    let mut snapshots: Vec<Snapshot> = targets.into_iter().flat_map(snapshots_of).collect();
    snapshots.sort_by_key(|snapshot| snapshot.time_ns);
    Ok((
        metadata,
        merge_targets(snapshots)
            .into_iter()
            .map(Record::Snapshot)
            .collect(),
    ))
}

fn json_error(path: &Path, error: &serde_json::Error) -> ReadError {
    let message = error.to_string();
    // serde_json appends the position. ReadError has it at the front.
    let reason = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(reason, _)| reason)
        .to_owned();
    ReadError::Json {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
        reason,
    }
}

fn settings(intervals: Option<&Intervals>) -> Settings {
    let (sample_ns, aggr_ns, update_ns) = intervals.map_or(DEFAULT_INTERVALS, |i| {
        (i.sample_us.0, i.aggr_us.0, i.ops_update_us.0)
    });
    Settings {
        sample_ns: sample_ns.max(1),
        aggr_ns,
        update_ns,
        min_nr_regions: 10,
        max_nr_regions: 1000,
        cpu_budget_percent: None,
    }
}

fn metadata(targets: &[TargetRecord]) -> Metadata {
    let starts = targets.iter().flat_map(|t| &t.snapshots).map(|s| s.start_time.0);
    let mut ids: Vec<u64> = targets.iter().map(|t| t.target_id.0).collect();
    ids.sort_unstable();
    ids.dedup();
    let names: Vec<String> = ids.iter().map(u64::to_string).collect();
    Metadata {
        schema: SCHEMA,
        writer: "damo".to_owned(),
        kernel: "unknown".to_owned(),
        arch: "unknown".to_owned(),
        tracker: "kdamond".to_owned(),
        tracker_reason: "recorded by damo from in-kernel DAMON".to_owned(),
        seed: 0,
        wall_clock_offset_ns: 0,
        start_ns: starts.min().unwrap_or(0),
        targets: format!("targets {} of damo", names.join(", ")),
        settings: settings(targets.first().and_then(|t| t.intervals.as_ref())),
        schemes: Vec::new(),
    }
}

/// The snapshots of one target, each with this target only.
fn snapshots_of(record: TargetRecord) -> impl Iterator<Item = Snapshot> {
    let settings = settings(record.intervals.as_ref());
    let has_intervals = record.intervals.is_some();
    let id = u32::try_from(record.target_id.0).unwrap_or(u32::MAX);
    record.snapshots.into_iter().map(move |timed| {
        let duration = timed.end_time.0.saturating_sub(timed.start_time.0);
        let aggr_ns = if has_intervals { settings.aggr_ns } else { duration }.max(1);
        let sample_ns = timed
            .sample_interval_us
            .map_or(settings.sample_ns, |us| us.0)
            .max(1);
        let max = u32::try_from(aggr_ns / sample_ns).unwrap_or(u32::MAX).max(1);
        Snapshot {
            start_ns: timed.start_time.0,
            time_ns: timed.end_time.0,
            aggr_ns,
            max_nr_accesses: max,
            targets: vec![Target {
                id,
                pid: None,
                scanned: Some(false),
                averaged: 0,
                tables: None,
                regions: regions(&timed, max, aggr_ns),
            }],
        }
    })
}

/// Regions in ascending order, without damo's placeholder, an empty region.
fn regions(timed: &TimedRegions, max_nr_accesses: u32, aggr_ns: u64) -> Vec<Region> {
    let non_empty = timed.regions.iter().filter(|region| region.start < region.end);
    let mut regions: Vec<Region> = non_empty
        .map(|region| Region {
            start: region.start,
            end: region.end,
            nr_accesses: region.accesses.to_samples(max_nr_accesses),
            age: region.age.to_aggregations(aggr_ns),
            unknown: false,
        })
        .collect();
    regions.sort_by_key(|region| region.start);
    regions
}

/// Merges snapshots of different targets that end less than half an aggregation apart: DAMON's tracepoints
/// stamp the targets of one aggregation one after the other.
fn merge_targets(snapshots: Vec<Snapshot>) -> Vec<Snapshot> {
    let mut merged: Vec<Snapshot> = Vec::new();
    for mut snapshot in snapshots {
        let same_aggregation = merged.last_mut().filter(|last| {
            let is_close = snapshot.time_ns - last.time_ns < last.aggr_ns.div_ceil(2);
            is_close
                && snapshot
                    .targets
                    .iter()
                    .all(|t| last.targets.iter().all(|l| l.id != t.id))
        });
        match same_aggregation {
            Some(last) => last.targets.append(&mut snapshot.targets),
            None => merged.push(snapshot),
        }
    }
    merged
}
