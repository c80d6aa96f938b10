//! Which memory a scheme takes this time: what matches, in the order it goes, as far as the quota reaches.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::Scheme;
use super::candidate::{ApplyInput, Candidate, TargetMut};
use super::filter_eval::Verdict;
use super::huge_page_units::by_units;
use super::priority::{Histogram, finer, score};
use super::units::whole;
use super::window::Position;
use crate::ops::{Operations, TargetRange};
use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

/// The memory `scheme` takes, in the order it should be acted on: at most `room` bytes, the last piece cut to
/// whole units of its action. Under a limit the highest scores go first, and of those alike whatever lies behind `from`,
/// where the last window stopped.
pub(super) fn select(
    scheme: &Scheme,
    targets: &[TargetMut<'_>],
    input: &ApplyInput<'_>,
    room: Option<Bytes>,
    from: Option<Position>,
    ops: &mut dyn Operations,
) -> Vec<Candidate> {
    let mut candidates = matching(scheme, targets, input, from.filter(|_| room.is_some()));
    let unit = scheme.action.unit();
    if unit.0 > PAGE_SIZE {
        candidates = whole(&candidates, scheme.action, ops);
    }
    let Some(room) = room else { return candidates };
    let histogram = Histogram::new(candidates.iter().map(|c| (c.score, c.run.range.len())));
    let min_score = histogram.min_score(room);
    candidates.retain(|candidate| candidate.score >= min_score);
    let already_done = |c: &Candidate| from.is_some_and(|from| (c.run.target, c.run.range.start) < from);
    // Stable: what is alike stays in the order of targets and addresses.
    candidates.sort_by_key(|c| (Reverse((c.score, c.finer)), already_done(c)));
    fill(&mut candidates, room, unit);
    candidates
}

/// Cuts the list where `room` ends, to whole units.
fn fill(candidates: &mut Vec<Candidate>, mut room: Bytes, unit: Bytes) {
    for (index, candidate) in candidates.iter_mut().enumerate() {
        let range = &mut candidate.run.range;
        if range.len() <= room {
            room -= range.len();
            continue;
        }
        let part = Bytes(room.0 / unit.0 * unit.0);
        range.end = range.start + part;
        let whole = if part == Bytes::ZERO { index } else { index + 1 };
        candidates.truncate(whole);
        return;
    }
}

/// Everything that matches, by target and address. The region in which the last window stopped comes in two
/// parts.
fn matching(
    scheme: &Scheme,
    targets: &[TargetMut<'_>],
    input: &ApplyInput<'_>,
    from: Option<Position>,
) -> Vec<Candidate> {
    let priority = scheme.action.priority();
    let mut found = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        let stop = from.filter(|(id, _)| *id == target.id).map(|(_, addr)| addr);
        let regions = if scheme.action.unit().0 > PAGE_SIZE {
            Cow::Owned(by_units(target.regions.as_slice(), scheme.action))
        } else {
            Cow::Borrowed(target.regions.as_slice())
        };
        for region in regions.iter() {
            // Memory that could not be judged is not cold, whatever rates the pattern takes.
            let passed_over = region.unknown && scheme.action.is_for_cold();
            if passed_over || !scheme.pattern.matches(region, input.attrs) {
                continue;
            }
            let score = score(priority, scheme.quota.weights, region, input.attrs);
            let finer = finer(priority, scheme.quota.weights, region);
            let (nr_accesses, age) = (region.moving_nr_accesses(), region.age);
            scheme.filters.parts(target.id, region.range, |range, verdict| {
                let allowed = verdict == Verdict::Allowed;
                for range in halves(range, stop) {
                    let run = TargetRange {
                        target: target.id,
                        range,
                    };
                    found.push(Candidate {
                        target: index,
                        run,
                        allowed,
                        nr_accesses,
                        age,
                        score,
                        finer,
                    });
                }
            });
        }
    }
    found
}

/// `range`, in two parts if `stop` lies inside it.
fn halves(range: AddrRange, stop: Option<Addr>) -> impl Iterator<Item = AddrRange> {
    let stop = stop
        .map(Addr::align_down)
        .filter(|at| range.start < *at && *at < range.end);
    let left = stop.map(|at| AddrRange {
        start: range.start,
        end: at,
    });
    let rest = AddrRange {
        start: stop.unwrap_or(range.start),
        end: range.end,
    };
    left.into_iter().chain([rest])
}
