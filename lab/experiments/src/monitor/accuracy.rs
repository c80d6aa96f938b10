//! Compares snapshots with the truth.
//!
//! Memory is reported as hot when at least half of its access checks found it accessed. An aggregation is
//! judged when it lies completely within a phase of the truth and is not the first such aggregation, because
//! monitoring cannot yet know the new phase then. Memory reported as unknown is removed from the truth. The
//! delay until a new phase is detected is measured separately.

use serde::Serialize;
use thermo_recording::model::{Region, Snapshot, Target};
use thermo_units::AddrRange;

use super::ranges::{difference, edge_error_pages, length, overlap, similarity, union};
use super::truth::{Phase, Truth};

/// A phase is new when its similarity with the previous one is below this.
const NEW_PHASE: f64 = 0.5;

/// Accuracy of hot memory in a recording: means over the judged aggregations.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Accuracy {
    /// Number of judged aggregations.
    pub snapshots: usize,
    /// Number of phases with judged aggregations.
    pub phases: usize,
    /// Share of the bytes reported as hot that are hot, 0 to 1.
    pub precision: f64,
    /// Share of the hot bytes that are reported as hot, 0 to 1. Bytes reported as unknown do not count.
    pub recall: f64,
    /// Share of the hot bytes that are reported as unknown, 0 to 1.
    pub unknown_share: f64,
    /// Bytes wrongly reported as hot or as not hot, divided by the hot bytes: 0 is perfect, 1 is no better
    /// than reporting nothing as hot.
    pub hot_error: f64,
    /// Mean distance in pages of the borders of hot memory from the nearest reported border.
    pub edge_error_pages: f64,
    /// Mean delay in seconds until a new phase is detected: most newly hot bytes are reported as hot, and
    /// most bytes that are no longer hot are not. An undetected change counts with the length of its phase.
    /// `None` when no phase is new.
    pub detection_delay_s: Option<f64>,
    /// Number of new phases that were not detected.
    pub undetected_changes: usize,
    /// Mean number of regions in a snapshot.
    pub regions: f64,
    /// Accuracy of the first, second, third, fifth and tenth aggregation of all phases.
    pub nth: Vec<NthAccuracy>,
}

/// Accuracy of the n-th aggregation of all phases.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct NthAccuracy {
    /// Number of the aggregation in its phase, from 1.
    pub nth: usize,
    /// Number of phases that have such an aggregation.
    pub count: usize,
    /// Mean precision, 0 to 1.
    pub precision: f64,
    /// Mean recall, 0 to 1.
    pub recall: f64,
}

/// The ranges that a snapshot reports as hot and as unknown.
#[derive(Debug)]
struct Classified {
    hot: Vec<AddrRange>,
    unknown: Vec<AddrRange>,
    regions: usize,
}

/// Accuracy of one aggregation.
#[derive(Debug, Clone, Copy)]
struct Score {
    precision: f64,
    recall: f64,
    unknown_share: f64,
    hot_error: f64,
    edge_error_pages: f64,
    regions: usize,
}

/// Compares `snapshots` (in order) with `truth`. `None` when no aggregation can be judged.
#[must_use]
pub fn measure_accuracy(snapshots: &[&Snapshot], truth: &Truth) -> Option<Accuracy> {
    // Scores with the number of the aggregation in its phase, from 0.
    let mut numbered: Vec<(usize, Score)> = Vec::new();
    let mut phases = 0;
    for phase in &truth.phases {
        let within = snapshots
            .iter()
            .filter(|snapshot| snapshot.start_ns >= phase.start_ns && snapshot.time_ns <= phase.end_ns);
        let scores = within
            .enumerate()
            .filter_map(|(nth, snapshot)| Some((nth, score(snapshot, phase, truth.pid)?)));
        let before = numbered.len();
        numbered.extend(scores);
        phases += usize::from(numbered[before..].iter().any(|(nth, _)| *nth > 0));
    }
    let scores: Vec<Score> = numbered
        .iter()
        .filter(|(nth, _)| *nth > 0)
        .map(|(_, score)| *score)
        .collect();
    let mean = |field: fn(&Score) -> f64| scores.iter().map(field).sum::<f64>() / scores.len() as f64;
    let (detection_delay_s, undetected_changes) = detection_delay(snapshots, truth);
    (!scores.is_empty()).then(|| Accuracy {
        snapshots: scores.len(),
        phases,
        precision: mean(|score| score.precision),
        recall: mean(|score| score.recall),
        unknown_share: mean(|score| score.unknown_share),
        hot_error: mean(|score| score.hot_error),
        edge_error_pages: mean(|score| score.edge_error_pages),
        detection_delay_s,
        undetected_changes,
        regions: mean(|score| score.regions as f64),
        nth: [1, 2, 3, 5, 10]
            .into_iter()
            .filter_map(|nth| nth_accuracy(&numbered, nth))
            .collect(),
    })
}

fn nth_accuracy(numbered: &[(usize, Score)], nth: usize) -> Option<NthAccuracy> {
    let scores = || {
        let matching = numbered.iter().filter(move |(number, _)| number + 1 == nth);
        matching.map(|(_, score)| score)
    };
    let count = scores().count();
    let mean = |sum: f64| sum / count as f64;
    (count > 0).then(|| NthAccuracy {
        nth,
        count,
        precision: mean(scores().map(|score| score.precision).sum()),
        recall: mean(scores().map(|score| score.recall).sum()),
    })
}

/// `None` when the phase accesses no memory, or only memory reported as unknown.
fn score(snapshot: &Snapshot, phase: &Phase, pid: u32) -> Option<Score> {
    let classified = classify(snapshot, pid)?;
    let truth = difference(&phase.ranges, &classified.unknown);
    let (found, hot) = (length(&classified.hot), length(&truth));
    let correct = overlap(&classified.hot, &truth);
    (hot > 0).then(|| Score {
        precision: if found > 0 {
            correct as f64 / found as f64
        } else {
            0.0
        },
        recall: correct as f64 / hot as f64,
        unknown_share: 1.0 - hot as f64 / length(&phase.ranges) as f64,
        hot_error: (found + hot - 2 * correct) as f64 / hot as f64,
        edge_error_pages: edge_error_pages(&classified.hot, &truth).unwrap_or(0.0),
        regions: classified.regions,
    })
}

fn classify(snapshot: &Snapshot, pid: u32) -> Option<Classified> {
    let has_pid = |target: &&Target| target.pid == Some(pid);
    let target = snapshot.targets.iter().find(has_pid)?;
    let ranges = |matches: &dyn Fn(&Region) -> bool| {
        let regions = target.regions.iter().filter(|region| matches(region));
        union(
            regions
                .map(|region| AddrRange::new(region.start, region.end))
                .collect(),
        )
    };
    Some(Classified {
        hot: ranges(&|region| {
            !region.unknown && region.nr_accesses.saturating_mul(2) >= snapshot.max_nr_accesses
        }),
        unknown: ranges(&|region| region.unknown),
        regions: target.regions.len(),
    })
}

/// The mean delay in seconds until a new phase is detected, and the number of undetected ones.
fn detection_delay(snapshots: &[&Snapshot], truth: &Truth) -> (Option<f64>, usize) {
    let (Some(first), Some(last)) = (snapshots.first(), snapshots.last()) else {
        return (None, 0);
    };
    let mut delays = Vec::new();
    let mut undetected = 0;
    for pair in truth.phases.windows(2) {
        let [old, new] = pair else { continue };
        let is_recorded = old.start_ns >= first.start_ns && new.end_ns <= last.time_ns;
        if !is_recorded || similarity(&old.ranges, &new.ranges) >= NEW_PHASE {
            continue;
        }
        let detected = snapshots
            .iter()
            .filter(|snapshot| snapshot.time_ns > new.start_ns && snapshot.time_ns <= new.end_ns)
            .find(|snapshot| detects_change(snapshot, old, new, truth.pid));
        undetected += usize::from(detected.is_none());
        let at = detected.map_or(new.end_ns, |snapshot| snapshot.time_ns);
        delays.push(at.saturating_sub(new.start_ns) as f64 / 1e9);
    }
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    ((!delays.is_empty()).then_some(mean), undetected)
}

fn detects_change(snapshot: &Snapshot, old: &Phase, new: &Phase, pid: u32) -> bool {
    let Some(classified) = classify(snapshot, pid) else {
        return false;
    };
    let added = difference(&new.ranges, &old.ranges);
    let removed = difference(&old.ranges, &new.ranges);
    overlap(&classified.hot, &added) * 2 >= length(&added)
        && overlap(&classified.hot, &removed) * 2 <= length(&removed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const SEC: u64 = 1_000_000_000;

    /// A snapshot of the second that ends at second `end`. Regions are `(start, end, nr_accesses)` in pages;
    /// the maximum of `nr_accesses` is 20.
    fn snapshot(end: u64, regions: &[(u64, u64, u32)]) -> Snapshot {
        let region = |(start, end, nr_accesses): &(u64, u64, u32)| Region {
            start: start * 4096,
            end: end * 4096,
            nr_accesses: *nr_accesses,
            unknown: *nr_accesses == 99,
            ..Region::default()
        };
        let target = |pid, regions: &[(u64, u64, u32)]| Target {
            id: pid,
            pid: Some(pid),
            scanned: None,
            averaged: 0,
            tables: None,
            regions: regions.iter().map(region).collect(),
        };
        Snapshot {
            start_ns: (end - 1) * SEC,
            time_ns: end * SEC,
            max_nr_accesses: 20,
            targets: vec![target(1, &[(0, 9999, 20)]), target(7, regions)],
            ..Snapshot::default()
        }
    }

    /// Pages 0 to 100 are accessed for 10 s, then pages 1000 to 1100 for 10 s.
    fn truth() -> Truth {
        let mut text = String::new();
        for (phase, ranges) in ["[[0,409600]]", "[[4096000,4505600]]"].iter().enumerate() {
            for nth in 0..10 {
                let start = (phase as u64 * 10 + nth) * SEC;
                let end = start + SEC;
                text += &format!("{{\"start_ns\":{start},\"end_ns\":{end},\"pid\":7,\"ranges\":{ranges}}}\n");
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("truth");
        std::fs::write(&path, text).unwrap();
        Truth::read(&path).unwrap()
    }

    fn accuracy_of(snapshot_at: impl Fn(u64) -> Snapshot) -> Accuracy {
        let snapshots: Vec<Snapshot> = (1..=20).map(snapshot_at).collect();
        measure_accuracy(&snapshots.iter().collect::<Vec<_>>(), &truth()).unwrap()
    }

    #[test]
    fn exact_snapshots_have_no_error() {
        let accuracy = accuracy_of(|end| match end {
            ..=10 => snapshot(end, &[(0, 100, 20), (100, 2000, 0)]),
            _ => snapshot(end, &[(0, 1000, 3), (1000, 1100, 10), (1100, 2000, 9)]),
        });
        let expected = Accuracy {
            snapshots: 18,
            phases: 2,
            precision: 1.0,
            recall: 1.0,
            unknown_share: 0.0,
            hot_error: 0.0,
            edge_error_pages: 0.0,
            detection_delay_s: Some(1.0),
            undetected_changes: 0,
            regions: 2.5,
            nth: [1, 2, 3, 5, 10]
                .map(|nth| NthAccuracy {
                    nth,
                    count: 2,
                    precision: 1.0,
                    recall: 1.0,
                })
                .into(),
        };
        assert_eq!(accuracy, expected);
    }

    #[test]
    fn late_and_inexact_snapshots_have_known_errors() {
        // Borders are ten pages too wide, and the change is reported three seconds late.
        let accuracy = accuracy_of(|end| match end {
            ..=13 => snapshot(end, &[(0, 110, 20)]),
            _ => snapshot(end, &[(990, 1110, 20)]),
        });
        assert_eq!(accuracy.detection_delay_s, Some(4.0));
        // Nine of ten aggregations of each phase are judged. In the second phase the first two of nine find
        // nothing.
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        let recall: Vec<(usize, f64)> = accuracy.nth.iter().map(|nth| (nth.nth, nth.recall)).collect();
        assert_eq!(recall, [(1, 0.5), (2, 0.5), (3, 0.5), (5, 1.0), (10, 1.0)]);
        near(accuracy.recall, 16.0 / 18.0);
        near(
            accuracy.precision,
            (9.0 * 100.0 / 110.0 + 7.0 * 100.0 / 120.0) / 18.0,
        );
        near(accuracy.hot_error, (9.0 * 0.1 + 2.0 * 2.1 + 7.0 * 0.2) / 18.0);
        near(
            accuracy.edge_error_pages,
            (9.0 * 5.0 + 2.0 * 100.0 + 7.0 * 10.0) / 18.0,
        );
    }

    #[test]
    fn undetected_change_counts_whole_phase_and_unknown_nothing() {
        let constant = accuracy_of(|end| snapshot(end, &[(0, 100, 20)]));
        assert_eq!(
            (constant.detection_delay_s, constant.undetected_changes),
            (Some(10.0), 1)
        );
        let half = accuracy_of(|end| match end {
            ..=10 => snapshot(end, &[(0, 50, 20), (50, 100, 99)]),
            _ => snapshot(end, &[(1000, 1100, 20)]),
        });
        assert_eq!((half.precision, half.recall, half.hot_error), (1.0, 1.0, 0.0));
        assert!((half.unknown_share - 0.25).abs() < 1e-9, "{half:?}");
    }

    #[test]
    fn other_time_or_process_has_no_accuracy() {
        let late = snapshot(100, &[(0, 100, 20)]);
        assert_eq!(measure_accuracy(&[&late], &truth()), None);
        let mut other = truth();
        other.pid = 8;
        let good: Vec<Snapshot> = (1..=20).map(|end| snapshot(end, &[(0, 100, 20)])).collect();
        assert_eq!(measure_accuracy(&good.iter().collect::<Vec<_>>(), &other), None);
    }
}
