//! Snapshots beside the truth.
//!
//! Hot is what at least half of the looks found accessed. An aggregation counts when it lies within a phase of the truth
//! as a whole and is not the first to do so: of that one nobody could know yet. Memory that was told to be unknown is
//! left out of what should have been found. How soon a new phase is seen is judged apart.

use serde::Serialize;
use thermo_recording::model::{Region, Snapshot, Target};
use thermo_units::AddrRange;

use super::ranges::{edge_error_pages, joined, length, likeness, overlap, without};
use super::truth::{Phase, Truth};

/// A phase is new when it is less alike the one before than this.
const NEW_PHASE: f64 = 0.5;

/// How well a recording tells what is hot: means over the aggregations that were judged.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Judged {
    /// Aggregations that were judged.
    pub snapshots: usize,
    /// Phases they lie in.
    pub phases: usize,
    /// How much of what was told to be hot is, 0 to 1.
    pub precision: f64,
    /// How much of what is hot was told to be, 0 to 1.
    pub recall: f64,
    /// How much of what is hot was told to be unknown, which recall leaves out, 0 to 1.
    pub unknown_share: f64,
    /// Bytes that were told wrongly, as hot or as not, beside those that are hot: 0 is perfect, and 1 no better than
    /// to tell nothing.
    pub error: f64,
    /// How many pages the borders of what is hot lie from the nearest that were told.
    pub edge_error_pages: f64,
    /// How long it took until most of what is newly hot was told to be and most of what is no longer was not, in
    /// seconds; a change that was not seen in its phase counts with the phase's length. Nothing where no phase is new.
    pub notice_s: Option<f64>,
    /// Changes of phase that were never seen.
    pub unseen_changes: usize,
    /// Regions in a snapshot.
    pub regions: f64,
    /// The first, second, third, fifth and tenth aggregation of every phase by themselves.
    pub nth: Vec<Nth>,
}

/// The n-th aggregations of every phase together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Nth {
    /// Which one, from 1.
    pub nth: usize,
    /// How many there are.
    pub count: usize,
    /// Their mean precision, 0 to 1.
    pub precision: f64,
    /// Their mean recall, 0 to 1.
    pub recall: f64,
}

/// What one snapshot tells.
#[derive(Debug)]
struct Told {
    hot: Vec<AddrRange>,
    unknown: Vec<AddrRange>,
    regions: usize,
}

/// One aggregation beside its phase.
#[derive(Debug, Clone, Copy)]
struct Score {
    precision: f64,
    recall: f64,
    unknown_share: f64,
    error: f64,
    edge_error_pages: f64,
    regions: usize,
}

/// Judges `snapshots` (in order) by `truth`; nothing where no aggregation can be judged.
#[must_use]
pub fn judge(snapshots: &[&Snapshot], truth: &Truth) -> Option<Judged> {
    // By their place in the phase, from 0.
    let mut placed: Vec<(usize, Score)> = Vec::new();
    let mut phases = 0;
    for phase in &truth.phases {
        let within = snapshots
            .iter()
            .filter(|snapshot| snapshot.start_ns >= phase.start_ns && snapshot.time_ns <= phase.end_ns);
        let judged = within
            .enumerate()
            .filter_map(|(nth, snapshot)| Some((nth, score(snapshot, phase, truth.pid)?)));
        let before = placed.len();
        placed.extend(judged);
        phases += usize::from(placed[before..].iter().any(|(nth, _)| *nth > 0));
    }
    let scores: Vec<Score> = placed
        .iter()
        .filter(|(nth, _)| *nth > 0)
        .map(|(_, score)| *score)
        .collect();
    let mean = |of: fn(&Score) -> f64| scores.iter().map(of).sum::<f64>() / scores.len() as f64;
    let (notice_s, unseen_changes) = notice(snapshots, truth);
    (!scores.is_empty()).then(|| Judged {
        snapshots: scores.len(),
        phases,
        precision: mean(|score| score.precision),
        recall: mean(|score| score.recall),
        unknown_share: mean(|score| score.unknown_share),
        error: mean(|score| score.error),
        edge_error_pages: mean(|score| score.edge_error_pages),
        notice_s,
        unseen_changes,
        regions: mean(|score| score.regions as f64),
        nth: [1, 2, 3, 5, 10]
            .into_iter()
            .filter_map(|nth| nth_of(&placed, nth))
            .collect(),
    })
}

fn nth_of(placed: &[(usize, Score)], nth: usize) -> Option<Nth> {
    let of = || {
        let those = placed.iter().filter(move |(place, _)| place + 1 == nth);
        those.map(|(_, score)| score)
    };
    let count = of().count();
    let mean = |sum: f64| sum / count as f64;
    (count > 0).then(|| Nth {
        nth,
        count,
        precision: mean(of().map(|score| score.precision).sum()),
        recall: mean(of().map(|score| score.recall).sum()),
    })
}

/// Nothing where the phase touches nothing that could be found.
fn score(snapshot: &Snapshot, phase: &Phase, pid: u32) -> Option<Score> {
    let told = told(snapshot, pid)?;
    let truth = without(&phase.ranges, &told.unknown);
    let (found, hot) = (length(&told.hot), length(&truth));
    let right = overlap(&told.hot, &truth);
    (hot > 0).then(|| Score {
        precision: if found > 0 {
            right as f64 / found as f64
        } else {
            0.0
        },
        recall: right as f64 / hot as f64,
        unknown_share: 1.0 - hot as f64 / length(&phase.ranges) as f64,
        error: (found + hot - 2 * right) as f64 / hot as f64,
        edge_error_pages: edge_error_pages(&told.hot, &truth).unwrap_or(0.0),
        regions: told.regions,
    })
}

fn told(snapshot: &Snapshot, pid: u32) -> Option<Told> {
    let is_it = |target: &&Target| target.pid == Some(pid);
    let target = snapshot.targets.iter().find(is_it)?;
    let ranges = |wanted: &dyn Fn(&Region) -> bool| {
        let regions = target.regions.iter().filter(|region| wanted(region));
        joined(
            regions
                .map(|region| AddrRange::new(region.start, region.end))
                .collect(),
        )
    };
    Some(Told {
        hot: ranges(&|region| {
            !region.unknown && region.nr_accesses.saturating_mul(2) >= snapshot.max_nr_accesses
        }),
        unknown: ranges(&|region| region.unknown),
        regions: target.regions.len(),
    })
}

/// The mean time until a new phase was seen, and how many were not.
fn notice(snapshots: &[&Snapshot], truth: &Truth) -> (Option<f64>, usize) {
    let (Some(first), Some(last)) = (snapshots.first(), snapshots.last()) else {
        return (None, 0);
    };
    let mut times = Vec::new();
    let mut unseen = 0;
    for pair in truth.phases.windows(2) {
        let [old, new] = pair else { continue };
        let watched = old.start_ns >= first.start_ns && new.end_ns <= last.time_ns;
        if !watched || likeness(&old.ranges, &new.ranges) >= NEW_PHASE {
            continue;
        }
        let seen = snapshots
            .iter()
            .filter(|snapshot| snapshot.time_ns > new.start_ns && snapshot.time_ns <= new.end_ns)
            .find(|snapshot| sees_change(snapshot, old, new, truth.pid));
        unseen += usize::from(seen.is_none());
        let at = seen.map_or(new.end_ns, |snapshot| snapshot.time_ns);
        times.push(at.saturating_sub(new.start_ns) as f64 / 1e9);
    }
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    ((!times.is_empty()).then_some(mean), unseen)
}

fn sees_change(snapshot: &Snapshot, old: &Phase, new: &Phase, pid: u32) -> bool {
    let Some(told) = told(snapshot, pid) else {
        return false;
    };
    let come = without(&new.ranges, &old.ranges);
    let gone = without(&old.ranges, &new.ranges);
    overlap(&told.hot, &come) * 2 >= length(&come) && overlap(&told.hot, &gone) * 2 <= length(&gone)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const SEC: u64 = 1_000_000_000;

    /// A snapshot of the second that ends at `end`, with the regions `(start, end, nr_accesses)` in pages, of 20.
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

    /// Pages 0 to 100 for ten seconds, then pages 1000 to 1100 for ten.
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

    fn judged(told: impl Fn(u64) -> Snapshot) -> Judged {
        let snapshots: Vec<Snapshot> = (1..=20).map(told).collect();
        judge(&snapshots.iter().collect::<Vec<_>>(), &truth()).unwrap()
    }

    #[test]
    fn who_sees_all_at_once_has_no_error() {
        let judged = judged(|end| match end {
            ..=10 => snapshot(end, &[(0, 100, 20), (100, 2000, 0)]),
            _ => snapshot(end, &[(0, 1000, 3), (1000, 1100, 10), (1100, 2000, 9)]),
        });
        let expected = Judged {
            snapshots: 18,
            phases: 2,
            precision: 1.0,
            recall: 1.0,
            unknown_share: 0.0,
            error: 0.0,
            edge_error_pages: 0.0,
            notice_s: Some(1.0),
            unseen_changes: 0,
            regions: 2.5,
            nth: [1, 2, 3, 5, 10]
                .map(|nth| Nth {
                    nth,
                    count: 2,
                    precision: 1.0,
                    recall: 1.0,
                })
                .into(),
        };
        assert_eq!(judged, expected);
    }

    #[test]
    fn late_and_rough_is_told_by_how_much() {
        // Borders ten pages too wide on both sides, and the change is seen after three seconds.
        let judged = judged(|end| match end {
            ..=13 => snapshot(end, &[(0, 110, 20)]),
            _ => snapshot(end, &[(990, 1110, 20)]),
        });
        assert_eq!(judged.notice_s, Some(4.0));
        // Nine of ten are judged in the first phase; in the second the first two of nine miss all of it.
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        let recall: Vec<(usize, f64)> = judged.nth.iter().map(|nth| (nth.nth, nth.recall)).collect();
        assert_eq!(recall, [(1, 0.5), (2, 0.5), (3, 0.5), (5, 1.0), (10, 1.0)]);
        near(judged.recall, 16.0 / 18.0);
        near(
            judged.precision,
            (9.0 * 100.0 / 110.0 + 7.0 * 100.0 / 120.0) / 18.0,
        );
        near(judged.error, (9.0 * 0.1 + 2.0 * 2.1 + 7.0 * 0.2) / 18.0);
        near(
            judged.edge_error_pages,
            (9.0 * 5.0 + 2.0 * 100.0 + 7.0 * 10.0) / 18.0,
        );
    }

    #[test]
    fn what_is_never_seen_counts_with_all_of_its_phase_and_the_unknown_does_not_count() {
        let blind = judged(|end| snapshot(end, &[(0, 100, 20)]));
        assert_eq!((blind.notice_s, blind.unseen_changes), (Some(10.0), 1));
        let half = judged(|end| match end {
            ..=10 => snapshot(end, &[(0, 50, 20), (50, 100, 99)]),
            _ => snapshot(end, &[(1000, 1100, 20)]),
        });
        assert_eq!((half.precision, half.recall, half.error), (1.0, 1.0, 0.0));
        assert!((half.unknown_share - 0.25).abs() < 1e-9, "{half:?}");
    }

    #[test]
    fn nothing_can_be_said_of_another_time_or_process() {
        let late = snapshot(100, &[(0, 100, 20)]);
        assert_eq!(judge(&[&late], &truth()), None);
        let mut other = truth();
        other.pid = 8;
        let good: Vec<Snapshot> = (1..=20).map(|end| snapshot(end, &[(0, 100, 20)])).collect();
        assert_eq!(judge(&good.iter().collect::<Vec<_>>(), &other), None);
    }
}
