//! Huge pages an action still has to change: candidates are cut to whole huge pages of 2 MiB, and huge pages
//! that are already in the wanted state are removed before they use up a quota.

use super::candidate::Candidate;
use crate::action::Action;
use crate::ops::{Operations, TargetRange};
use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange};

/// Cuts `candidates` (by target and address) to whole huge pages that `action` still has to change.
///
/// A huge page that lies across adjacent candidates belongs to the left one. A huge page that the candidates
/// do not cover fully is skipped.
pub(super) fn pending_huge_pages(
    candidates: &[Candidate],
    action: Action,
    ops: &mut dyn Operations,
) -> Vec<Candidate> {
    let unit = action.unit();
    let mut pending = Vec::with_capacity(candidates.len());
    for (candidate, covered_to) in candidates.iter().zip(ends_of_coverage(candidates)) {
        let range = candidate.target_range.range;
        let whole = AddrRange {
            start: align_up(range.start, unit),
            end: align_up(range.end, unit).min(align_down(covered_to, unit)),
        };
        if whole.is_empty() {
            continue;
        }
        let target_range = TargetRange {
            target: candidate.target_range.target,
            range: whole,
        };
        pending.extend(
            ops.pending(action, &[], &target_range)
                .into_iter()
                .map(|range| Candidate {
                    target_range: TargetRange {
                        range,
                        ..target_range
                    },
                    ..*candidate
                }),
        );
    }
    pending
}

/// For each candidate, the address up to which it and the adjacent candidates behind it leave no gap.
fn ends_of_coverage(candidates: &[Candidate]) -> Vec<Addr> {
    let mut ends = Vec::with_capacity(candidates.len());
    // From the right: the end of a candidate depends on the candidate behind it.
    let mut next = None;
    for candidate in candidates.iter().rev() {
        let (target, range) = (candidate.target_range.target, candidate.target_range.range);
        let end = match next {
            Some((next_target, start, end)) if (next_target, start) == (target, range.end) => end,
            _ => range.end,
        };
        next = Some((target, range.start, end));
        ends.push(end);
    }
    ends.reverse();
    ends
}

fn align_up(addr: Addr, unit: Bytes) -> Addr {
    align_down(Addr(addr.0.saturating_add(unit.0 - 1)), unit)
}

const fn align_down(addr: Addr, unit: Bytes) -> Addr {
    Addr(addr.0 & !(unit.0 - 1))
}
