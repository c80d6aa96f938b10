//! Reads damo's records: JSON with one list of snapshots per target. The whole file is read into memory and
//! sorted by time.

mod json;
mod missing;
mod quantity;

use std::io::Read;
use std::path::Path;

use crate::error::ReadError;
use crate::model::{Metadata, Record, Region, SCHEMA, Settings, Snapshot, Target};
use json::{Accesses, Intervals, TargetRecord, TimedRegions};

/// damo's default sampling interval in ns. Access counts of files without intervals refer to it.
const DEFAULT_SAMPLE_NS: u64 = 5_000_000;

/// Reads damo's JSON from `input`. `path` is for errors.
pub(crate) fn read(path: &Path, input: impl Read) -> Result<(Metadata, Vec<Record>), ReadError> {
    let mut parser = serde_json::Deserializer::from_reader(input);
    let parsed =
        serde::Deserialize::deserialize(&mut parser).and_then(|targets| parser.end().map(|()| targets));
    let targets: Vec<TargetRecord> = parsed.map_err(|error| json_error(path, &error))?;
    let ids = TargetIds::new(&targets);
    let metadata = metadata(&targets, &ids);
    let mut records = missing::notes(&targets, metadata.start_ns);
    let mut snapshots: Vec<Snapshot> = targets
        .into_iter()
        .flat_map(|target| snapshots_of(target, &ids))
        .collect();
    snapshots.sort_by_key(|snapshot| snapshot.time_ns);
    records.extend(merge_targets(snapshots).into_iter().map(Record::Snapshot));
    Ok((metadata, records))
}

/// The ids of all targets in the file, ascending. Old kernels wrote addresses as ids, which are numbered.
struct TargetIds(Vec<u64>);

impl TargetIds {
    fn new(targets: &[TargetRecord]) -> Self {
        let mut ids: Vec<u64> = targets.iter().map(|target| target.target_id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        Self(ids)
    }

    /// The id in the recording: that of the file where all of them fit, else its number.
    fn get(&self, id: u64) -> u32 {
        let fits = self.0.last().is_some_and(|last| u32::try_from(*last).is_ok());
        let number = self.0.partition_point(|other| *other < id) as u64;
        u32::try_from(if fits { id } else { number }).unwrap_or(u32::MAX)
    }
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

/// The settings that the file has. The numbers of regions are never in it.
fn settings(intervals: Intervals) -> Settings {
    Settings {
        sample_ns: intervals.sample_us.map(|us| us.0),
        aggr_ns: intervals.aggr_us.map(|us| us.0),
        update_ns: intervals.ops_update_us.map(|us| us.0),
        ..Settings::default()
    }
}

fn metadata(targets: &[TargetRecord], ids: &TargetIds) -> Metadata {
    let starts = targets.iter().flat_map(|t| &t.snapshots).map(|s| s.start_time.0);
    let names: Vec<String> = ids.0.iter().map(u64::to_string).collect();
    Metadata {
        schema: SCHEMA,
        writer: "damo".to_owned(),
        kernel: "unknown".to_owned(),
        arch: "unknown".to_owned(),
        tracker: "kdamond".to_owned(),
        tracker_reason: "recorded by damo from in-kernel DAMON".to_owned(),
        seed: None,
        wall_clock_offset_ns: None,
        start_ns: starts.min().unwrap_or(0),
        targets: format!("targets {} of damo", names.join(", ")),
        settings: settings(targets.first().and_then(|t| t.intervals).unwrap_or_default()),
        schemes: Vec::new(),
        imported: true,
    }
}

/// The snapshots of one target, each with this target only.
fn snapshots_of(record: TargetRecord, ids: &TargetIds) -> impl Iterator<Item = Snapshot> + use<> {
    let settings = settings(record.intervals.unwrap_or_default());
    let id = ids.get(record.target_id.0);
    record.snapshots.into_iter().map(move |timed| {
        let duration = timed.end_time.0.saturating_sub(timed.start_time.0);
        let aggr_ns = settings.aggr_ns.unwrap_or(duration).max(1);
        let max = max_nr_accesses(&timed, settings.sample_ns, aggr_ns);
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

/// Access checks of each region: by the intervals, and no fewer than a region was found accessed.
fn max_nr_accesses(timed: &TimedRegions, sample_ns: Option<u64>, aggr_ns: u64) -> u32 {
    let sample_ns = timed.sample_interval_us.map(|us| us.0).or(sample_ns);
    let by_intervals = aggr_ns / sample_ns.unwrap_or(DEFAULT_SAMPLE_NS).max(1);
    let found = timed.regions.iter().map(|region| match region.accesses {
        Some(Accesses::Samples(samples)) => samples,
        Some(Accesses::Permyriad(_)) | None => 0,
    });
    let most = found.max().unwrap_or(0).max(1);
    u32::try_from(by_intervals).unwrap_or(u32::MAX).max(most)
}

/// Regions in ascending order, without damo's placeholder, an empty region.
fn regions(timed: &TimedRegions, max_nr_accesses: u32, aggr_ns: u64) -> Vec<Region> {
    let non_empty = timed.regions.iter().filter(|region| region.start < region.end);
    let mut regions: Vec<Region> = non_empty
        .map(|region| Region {
            start: region.start,
            end: region.end,
            nr_accesses: region
                .accesses
                .map_or(0, |accesses| accesses.to_samples(max_nr_accesses)),
            age: region.age.map(|age| age.to_aggregations(aggr_ns)),
            unknown: region.accesses.is_none(),
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
