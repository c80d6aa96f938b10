//! Whole huge pages: actions on them are chosen, counted and cut in units of 2 MiB, and what is done already is left
//! out before a quota is spent on it.

use super::candidate::Candidate;
use crate::action::Action;
use crate::ops::{Operations, TargetRange};
use thermo_units::Bytes;
use thermo_units::{Addr, AddrRange};

/// Makes of `found` (by target and address) the units that lie in it, and of these what is left to do for `action`.
///
/// A unit that lies across neighbours that were both found counts as the left one's; one that reaches out of what was
/// found is left out.
pub(super) fn whole(found: &[Candidate], action: Action, ops: &mut dyn Operations) -> Vec<Candidate> {
    let unit = action.unit();
    let mut units = Vec::with_capacity(found.len());
    // From the right, because what follows decides how far a piece reaches.
    let mut reach = None;
    let mut reaches: Vec<Addr> = Vec::with_capacity(found.len());
    for candidate in found.iter().rev() {
        let (target, range) = (candidate.run.target, candidate.run.range);
        let end = match reach {
            Some((next, start, end)) if (next, start) == (target, range.end) => end,
            _ => range.end,
        };
        reach = Some((target, range.start, end));
        reaches.push(end);
    }
    for (candidate, reach) in found.iter().zip(reaches.into_iter().rev()) {
        let range = candidate.run.range;
        let inside = AddrRange {
            start: up(range.start, unit),
            end: up(range.end, unit).min(down(reach, unit)),
        };
        if inside.is_empty() {
            continue;
        }
        let run = TargetRange {
            target: candidate.run.target,
            range: inside,
        };
        units.extend(ops.pending(action, &run).into_iter().map(|range| Candidate {
            run: TargetRange { range, ..run },
            ..*candidate
        }));
    }
    units
}

fn up(addr: Addr, unit: Bytes) -> Addr {
    down(Addr(addr.0.saturating_add(unit.0 - 1)), unit)
}

const fn down(addr: Addr, unit: Bytes) -> Addr {
    Addr(addr.0 & !(unit.0 - 1))
}
