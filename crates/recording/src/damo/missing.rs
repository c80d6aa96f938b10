//! What a file of damo does not say, as warnings of the recording.

use super::json::{DamoRegion, TargetRecord};
use crate::model::{Note, Record};

/// A warning for each kind of number that the file lacks.
pub(super) fn notes(targets: &[TargetRecord], time_ns: u64) -> Vec<Record> {
    let note = |text| {
        Record::Note(Note {
            time_ns,
            kind: "warning".to_owned(),
            text,
        })
    };
    let sentences = [accesses(targets), ages(targets), intervals(targets)];
    sentences.into_iter().flatten().map(note).collect()
}

fn accesses(targets: &[TargetRecord]) -> Option<String> {
    let (missing, all) = count(targets, |region| region.accesses.is_none());
    (missing > 0).then(|| {
        format!("{missing} of {all} regions of damo have no nr_accesses: their accesses are unknown.")
    })
}

fn ages(targets: &[TargetRecord]) -> Option<String> {
    let (missing, all) = count(targets, |region| region.age.is_none());
    (missing > 0).then(|| {
        format!("{missing} of {all} regions of damo have no age: for how long memory was not accessed is unknown in them.")
    })
}

fn intervals(targets: &[TargetRecord]) -> Option<String> {
    let mut snapshots = targets.iter().flat_map(|target| {
        let sample = target.intervals.and_then(|intervals| intervals.sample_us);
        target
            .snapshots
            .iter()
            .map(move |timed| sample.or(timed.sample_interval_us))
    });
    let is_missing = snapshots.any(|sample| sample.is_none());
    is_missing
        .then(|| "the file has no sampling interval: access rates assume 5 ms, damo's default.".to_owned())
}

/// Regions that lack a number, and all regions.
fn count(targets: &[TargetRecord], lacks: impl Fn(&DamoRegion) -> bool) -> (usize, usize) {
    let regions = targets
        .iter()
        .flat_map(|target| &target.snapshots)
        .flat_map(|timed| &timed.regions);
    let non_empty = regions.filter(|region| region.start < region.end);
    non_empty.fold((0, 0), |(missing, all), region| {
        (missing + usize::from(lacks(region)), all + 1)
    })
}
