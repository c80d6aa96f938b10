//! Export to damo's record format: a list with one entry per target, each with all its snapshots.
//!
//! A recording is in the order of time. To save memory, the export reads the recording once to find the
//! targets, and once more for each target. Regions of unknown access are omitted: damo has no such state and
//! would treat them as cold.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::{ExportError, snapshots};
use crate::model::{Metadata, Region, Settings, Snapshot, Target};
use crate::reader::{Recording, open};

/// Writes the recording at `path` to `out` as JSON that damo 3.4 reads. `compressed` adds zlib compression,
/// as `damo record` does.
///
/// # Errors
/// The recording cannot be read, or `out` cannot be written.
pub fn damo_json(path: &Path, out: impl Write, compressed: bool) -> Result<(), ExportError> {
    if compressed {
        let mut zlib = BufWriter::new(ZlibEncoder::new(out, Compression::fast()));
        write_targets(path, &mut zlib)?;
        let encoder = zlib.into_inner().map_err(io::IntoInnerError::into_error)?;
        return Ok(encoder.finish()?.flush()?);
    }
    let mut plain = BufWriter::new(out);
    write_targets(path, &mut plain)?;
    Ok(plain.flush()?)
}

fn write_targets(path: &Path, out: &mut impl Write) -> Result<(), ExportError> {
    let targets = target_ids(&mut open(path)?)?;
    write!(out, "[")?;
    for (index, target) in targets.iter().enumerate() {
        let mut recording = open(path)?;
        write!(out, "{}", if index == 0 { "\n" } else { ",\n" })?;
        write_target_head(&recording.metadata, *target, out)?;
        write_snapshots(&mut recording, *target, out)?;
        write!(out, "]}}")?;
    }
    writeln!(out, "\n]")?;
    Ok(())
}

fn target_ids(recording: &mut Recording) -> Result<BTreeSet<u32>, ExportError> {
    let mut ids = BTreeSet::new();
    for snapshot in snapshots(recording) {
        ids.extend(snapshot?.targets.iter().map(|target| target.id));
    }
    Ok(ids)
}

fn write_target_head(metadata: &Metadata, target: u32, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{{\"kdamond_idx\": 0, \"context_idx\": 0, ")?;
    write_intervals(metadata.settings, out)?;
    write!(
        out,
        "\"scheme_idx\": null, \"target_id\": {target}, \"scheme_filters\": [], "
    )?;
    write!(out, "\"data_source\": \"unknown\", \"snapshots\": [")
}

/// damo has either all intervals or `null`.
fn write_intervals(settings: Settings, out: &mut impl Write) -> io::Result<()> {
    let [Some(sample), Some(aggr), Some(update)] =
        [settings.sample_ns, settings.aggr_ns, settings.update_ns].map(|ns| ns.map(|ns| ns / 1000))
    else {
        return write!(out, "\"intervals\": null, ");
    };
    write!(
        out,
        "\"intervals\": {{\"sample_us\": \"{sample}\", \"aggr_us\": \"{aggr}\", "
    )?;
    write!(
        out,
        "\"ops_update_us\": \"{update}\", \"intervals_goal\": {{\"access_bp\": \"0\", \"aggrs\": \"0\", "
    )?;
    write!(out, "\"min_sample_us\": \"0\", \"max_sample_us\": \"0\"}}}}, ")
}

fn write_snapshots(recording: &mut Recording, id: u32, out: &mut impl Write) -> Result<(), ExportError> {
    let mut separator = "\n";
    for snapshot in snapshots(recording) {
        let snapshot = snapshot?;
        for target in snapshot.targets.iter().filter(|target| target.id == id) {
            write!(out, "{separator}")?;
            write_snapshot(&snapshot, target, out)?;
            separator = ",\n";
        }
    }
    Ok(())
}

fn write_snapshot(snapshot: &Snapshot, target: &Target, out: &mut impl Write) -> io::Result<()> {
    let Snapshot {
        start_ns,
        time_ns,
        aggr_ns,
        max_nr_accesses,
        ..
    } = *snapshot;
    let known = || target.regions.iter().filter(|region| !region.unknown);
    let total: u64 = known()
        .map(|region| region.end.saturating_sub(region.start))
        .sum();
    let sample_us = (aggr_ns / u64::from(max_nr_accesses.max(1)) / 1000).max(1);
    write!(
        out,
        "{{\"start_time\": \"{start_ns}\", \"end_time\": \"{time_ns}\", \"regions\": ["
    )?;
    for (index, region) in known().enumerate() {
        write!(out, "{}", if index == 0 { "" } else { ", " })?;
        write_region(region, snapshot, out)?;
    }
    write!(out, "], \"total_bytes\": \"{total}\", \"damos_stats\": null, ")?;
    write!(out, "\"sample_interval_us\": \"{sample_us}\"}}")
}

fn write_region(region: &Region, snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    let Region {
        start,
        end,
        nr_accesses,
        ..
    } = *region;
    let percent = u64::from(nr_accesses) * 100 / u64::from(snapshot.max_nr_accesses.max(1));
    write!(out, "{{\"start\": \"{start}\", \"end\": \"{end}\", ")?;
    write!(
        out,
        "\"nr_accesses\": {{\"samples\": {nr_accesses}, \"percent\": {percent}}}, "
    )?;
    match region.age.zip(region.age_ns(snapshot.aggr_ns)) {
        Some((age, ns)) => write!(
            out,
            "\"age\": {{\"usec\": \"{}\", \"aggr_intervals\": \"{age}\"}}, ",
            ns / 1000
        ),
        None => write!(out, "\"age\": {{\"usec\": null, \"aggr_intervals\": null}}, "),
    }?;
    write!(out, "\"probe_hits\": [], \"sz_filter_passed\": \"0\"}}")
}
