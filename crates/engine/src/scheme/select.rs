//! Selection of the memory that a scheme acts on: matching memory in priority order, limited by the quota.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::Scheme;
use super::candidate::{ApplyInput, Candidate, TargetMut};
use super::filter_eval::Decision;
use super::huge_page_units::huge_page_regions;
use super::migration::{Selection, select_pending};
use super::pending_huge_pages::pending_huge_pages;
use super::priority::{Histogram, score, tie_break};
use super::window::Position;
use crate::action::Action;
use crate::ops::{Operations, TargetRange};
use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

/// Selects memory for `scheme`, in the order in which to act on it: at most `budget` bytes, the last range
/// cut to whole units of the action; `None`: no limit. Under a limit the highest scores go first. Among equal
/// scores, ranges behind `from`, where the last window stopped, go first.
pub(super) fn select(
    scheme: &Scheme,
    targets: &[TargetMut<'_>],
    input: &ApplyInput<'_>,
    budget: Option<Bytes>,
    from: Option<Position>,
    ops: &mut dyn Operations,
) -> Selection {
    let from_position = from.filter(|_| budget.is_some());
    let mut candidates = matching(scheme, targets, input, from_position, ops);
    let unit = scheme.action.unit();
    let already_done =
        |c: &Candidate| from.is_some_and(|from| (c.target_range.target, c.target_range.range.start) < from);
    if scheme.action.migrates() {
        // Also without a limit: the node may be full before the last range.
        candidates.sort_by_key(|c| (Reverse((c.score, c.tie_break)), already_done(c)));
        return select_pending(&candidates, (scheme.action, &scheme.destinations), budget, ops);
    }
    if unit.0 > PAGE_SIZE {
        candidates = pending_huge_pages(&candidates, scheme.action, ops);
    }
    let whole = |selected| Selection {
        selected,
        is_cut: false,
    };
    let Some(budget) = budget else {
        return whole(candidates);
    };
    let histogram = Histogram::new(candidates.iter().map(|c| (c.score, c.target_range.range.len())));
    let min_score = histogram.min_score(budget);
    candidates.retain(|candidate| candidate.score >= min_score);
    // A stable sort: equal candidates stay in the order of targets and addresses.
    candidates.sort_by_key(|c| (Reverse((c.score, c.tie_break)), already_done(c)));
    truncate_to_budget(&mut candidates, budget, unit);
    whole(candidates)
}

/// Truncates the list to `budget` bytes. The last range is cut to whole units.
fn truncate_to_budget(candidates: &mut Vec<Candidate>, mut budget: Bytes, unit: Bytes) {
    for (index, candidate) in candidates.iter_mut().enumerate() {
        let range = &mut candidate.target_range.range;
        if range.len() <= budget {
            budget -= range.len();
            continue;
        }
        let part = Bytes(budget.0 / unit.0 * unit.0);
        range.end = range.start + part;
        let kept = if part == Bytes::ZERO { index } else { index + 1 };
        candidates.truncate(kept);
        return;
    }
}

/// All matching memory, by target and address. The region in which the last window stopped is split there.
fn matching(
    scheme: &Scheme,
    targets: &[TargetMut<'_>],
    input: &ApplyInput<'_>,
    from: Option<Position>,
    ops: &dyn Operations,
) -> Vec<Candidate> {
    let priority = scheme.action.priority();
    let mut found = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        if scheme.action != Action::Stat && ops.is_held(target.id) {
            continue;
        }
        let stop = from.filter(|(id, _)| *id == target.id).map(|(_, addr)| addr);
        let regions = if scheme.action.unit().0 > PAGE_SIZE {
            Cow::Owned(huge_page_regions(target.regions.as_slice(), scheme.action))
        } else {
            Cow::Borrowed(target.regions.as_slice())
        };
        for region in regions.iter() {
            // Unknown memory counts as not cold, also if the pattern includes all rates.
            let may_be_hot = region.unknown && scheme.action.requires_cold();
            if may_be_hot || !scheme.pattern.matches(region, input.attrs) {
                continue;
            }
            let score = score(priority, scheme.quota.weights, region, input.attrs);
            let tie_break = tie_break(priority, scheme.quota.weights, region);
            let (nr_accesses, age) = (region.moving_nr_accesses(), region.age);
            scheme
                .filters
                .split_by_decision(target.id, region.range, |range, decision| {
                    let allowed = decision == Decision::Allowed;
                    for range in split_range(range, stop) {
                        let target_range = TargetRange {
                            target: target.id,
                            range,
                        };
                        found.push(Candidate {
                            target_index: index,
                            target_range,
                            allowed,
                            nr_accesses,
                            age,
                            score,
                            tie_break,
                        });
                    }
                });
        }
    }
    found
}

/// `range`, in two parts if `stop` lies inside.
fn split_range(range: AddrRange, stop: Option<Addr>) -> impl Iterator<Item = AddrRange> {
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
