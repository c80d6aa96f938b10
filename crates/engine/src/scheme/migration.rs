//! Selection for actions that migrate. Memory that is on its node already is left out, so that it does not
//! use up the quota. Where memory is has to be asked for, so candidates are asked for in order, and only
//! until the quota is used up.

use super::candidate::Candidate;
use super::destination::Destination;
use crate::action::Action;
use crate::ops::{Operations, TargetRange};
use thermo_units::{Addr, AddrRange, Bytes};

/// How much memory is asked for at a time.
const STEP: Bytes = Bytes::mib(32);
const HUGE_PAGE: u64 = 2 << 20;

/// Selected memory, and whether the budget ended before all memory was asked for.
pub(super) struct Selection {
    pub(super) selected: Vec<Candidate>,
    pub(super) is_cut: bool,
}

/// Selects from `candidates`, in their order, what `action` still has to move: at most `budget` bytes. The
/// budget ends at a border of a huge page where possible, because huge pages are moved whole.
pub(super) fn select_pending(
    candidates: &[Candidate],
    (action, destinations): (Action, &[Destination]),
    budget: Option<Bytes>,
    ops: &mut dyn Operations,
) -> Selection {
    let mut selected: Vec<Candidate> = Vec::new();
    let mut rest = budget.unwrap_or(Bytes::MAX);
    for candidate in candidates {
        for range in steps(candidate.target_range.range) {
            let target_range = TargetRange {
                range,
                ..candidate.target_range
            };
            for pending in ops.pending(action, destinations, &target_range) {
                let range = cut(pending, rest, selected.is_empty());
                rest -= range.len();
                push(&mut selected, candidate, range);
                if range != pending {
                    return Selection {
                        selected,
                        is_cut: true,
                    };
                }
            }
        }
    }
    Selection {
        selected,
        is_cut: false,
    }
}

/// Adds `range`, a part of `candidate`. Adjacent parts are merged.
fn push(selected: &mut Vec<Candidate>, candidate: &Candidate, range: AddrRange) {
    if range.is_empty() {
        return;
    }
    let target = candidate.target_range.target;
    match selected.last_mut().map(|last| &mut last.target_range) {
        Some(last)
            if last.target == target
                && last.range.end == range.start
                && range.start > candidate.target_range.range.start =>
        {
            last.range.end = range.end;
        }
        _ => selected.push(Candidate {
            target_range: TargetRange { target, range },
            ..*candidate
        }),
    }
}

/// `range` in parts that end at multiples of [`STEP`].
fn steps(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let next = Addr((start.0 / STEP.0).saturating_add(1).saturating_mul(STEP.0));
        let part = AddrRange {
            start,
            end: next.min(range.end),
        };
        start = part.end;
        (!part.is_empty()).then_some(part)
    })
}

/// The start of `range` that fits in `budget`, up to a border of a huge page. Without such a border it is
/// empty, unless it `is_first`: then a budget below a huge page still moves pages.
fn cut(range: AddrRange, budget: Bytes, is_first: bool) -> AddrRange {
    if range.len() <= budget {
        return range;
    }
    let end = (range.start + budget).align_down();
    let at_border = Addr(end.0 / HUGE_PAGE * HUGE_PAGE);
    let end = match at_border > range.start {
        true => at_border,
        false if is_first => end,
        false => range.start,
    };
    AddrRange {
        start: range.start,
        end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_ends_at_huge_pages_where_possible() {
        let mib = |mib: u64| mib << 20;
        let cut = |start, end, budget, is_first| {
            let range = cut(AddrRange::new(start, end), Bytes(budget), is_first);
            (range.start.0, range.end.0)
        };
        assert_eq!(
            cut(mib(1), mib(9), mib(8), false),
            (mib(1), mib(9)),
            "all of it fits"
        );
        assert_eq!(cut(mib(1), mib(9), mib(6), false), (mib(1), mib(6)));
        assert_eq!(cut(mib(2), mib(9), mib(1), true), (mib(2), mib(3)));
        assert_eq!(cut(mib(2), mib(9), mib(1), false), (mib(2), mib(2)));
        assert_eq!(cut(mib(2), mib(9), 4095, true), (mib(2), mib(2)));
    }

    #[test]
    fn steps_cover_the_range_once() {
        let range = AddrRange::new(31 << 20, 97 << 20);
        let parts: Vec<(u64, u64)> = steps(range)
            .map(|part| (part.start.0 >> 20, part.end.0 >> 20))
            .collect();
        assert_eq!(parts, [(31, 32), (32, 64), (64, 96), (96, 97)]);
    }
}
