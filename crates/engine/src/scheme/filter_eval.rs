//! Evaluation of core filters on an address range.

use super::filter::{CoreFilter, CoreFilterKind, Filters};
use crate::target_id::TargetId;
use thermo_units::{Addr, AddrRange};

/// Result of the core filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// A core filter allowed the memory. Ops filters are skipped.
    Allowed,
    /// No core filter applied, and the default does not reject the memory. Ops filters decide.
    Undecided,
    /// The memory is skipped.
    Rejected,
}

impl Filters {
    /// Splits `range` of `target` where the decision changes, and passes each part that is not rejected to
    /// `emit`. The ends of address filters are rounded down to whole pages, as in the kernel.
    pub(super) fn split_by_decision(
        &self,
        target: TargetId,
        range: AddrRange,
        mut emit: impl FnMut(AddrRange, Decision),
    ) {
        if self.core.is_empty() {
            return emit(range, Decision::Undecided);
        }
        let mut boundaries: Vec<Addr> = self
            .core
            .iter()
            .flat_map(boundaries)
            .filter(|at| range.contains(*at))
            .collect();
        boundaries.push(range.end);
        boundaries.sort_unstable();

        let mut part: Option<(AddrRange, Decision)> = None;
        let mut start = range.start;
        for end in boundaries.into_iter().filter(|at| *at > range.start) {
            if start == end {
                continue;
            }
            let decision = self.decide(target, start);
            part = match part {
                Some((before, same)) if same == decision => Some((
                    AddrRange {
                        start: before.start,
                        end,
                    },
                    same,
                )),
                before => {
                    emit_unless_rejected(before, &mut emit);
                    Some((AddrRange { start, end }, decision))
                }
            };
            start = end;
        }
        emit_unless_rejected(part, &mut emit);
    }

    /// The decision on the page at `addr`.
    fn decide(&self, target: TargetId, addr: Addr) -> Decision {
        let applies = |filter: &&CoreFilter| filter.kind.matches(target, addr) == filter.matching;
        match self.core.iter().find(applies) {
            Some(filter) if filter.allow => Decision::Allowed,
            Some(_) => Decision::Rejected,
            // A list whose last filter allows means "only these". If ops filters follow, they decide.
            None if self.ops.is_empty() && self.core.last().is_some_and(|last| last.allow) => {
                Decision::Rejected
            }
            None => Decision::Undecided,
        }
    }
}

impl CoreFilterKind {
    fn matches(&self, target: TargetId, addr: Addr) -> bool {
        match self {
            Self::Addr(range) => range.start.align_down() <= addr && addr < range.end.align_down(),
            Self::Target(id) => *id == target,
        }
    }
}

/// The addresses where the result of `filter` can change.
fn boundaries(filter: &CoreFilter) -> impl Iterator<Item = Addr> + use<> {
    let range = match filter.kind {
        CoreFilterKind::Addr(range) => Some(range),
        CoreFilterKind::Target(_) => None,
    };
    range
        .into_iter()
        .flat_map(|range| [range.start.align_down(), range.end.align_down()])
}

fn emit_unless_rejected(part: Option<(AddrRange, Decision)>, emit: &mut impl FnMut(AddrRange, Decision)) {
    if let Some((range, decision)) = part
        && decision != Decision::Rejected
    {
        emit(range, decision);
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::{OpsFilter, OpsFilterKind};
    use super::*;

    fn addr(start: u64, end: u64, matching: bool, allow: bool) -> CoreFilter {
        CoreFilter {
            kind: CoreFilterKind::Addr(AddrRange::new(start << 12, end << 12)),
            matching,
            allow,
        }
    }

    fn target(id: u32, matching: bool, allow: bool) -> CoreFilter {
        CoreFilter {
            kind: CoreFilterKind::Target(TargetId(id)),
            matching,
            allow,
        }
    }

    /// The parts of pages 0 to 10 of target 0 that pass: first page, last page + 1, explicitly allowed.
    fn parts(core: &[CoreFilter], with_ops_filter: bool) -> Vec<(u64, u64, bool)> {
        let young = OpsFilter {
            kind: OpsFilterKind::Young,
            matching: true,
            allow: false,
        };
        let ops = if with_ops_filter { vec![young] } else { Vec::new() };
        let mut parts = Vec::new();
        Filters {
            core: core.to_vec(),
            ops,
        }
        .split_by_decision(TargetId(0), AddrRange::new(0, 10 << 12), |range, decision| {
            parts.push((
                range.start.0 >> 12,
                range.end.0 >> 12,
                decision == Decision::Allowed,
            ));
        });
        parts
    }

    #[test]
    fn one_filter_decides_in_all_forms() {
        for (matching, allow, passed, with_ops_filter) in [
            // Memory to which no filter applies gets the default. Reject lists keep it.
            (
                true,
                false,
                vec![(0, 3, false), (7, 10, false)],
                vec![(0, 3, false), (7, 10, false)],
            ),
            (false, false, vec![(3, 7, false)], vec![(3, 7, false)]),
            // Allow lists reject it, unless ops filters decide.
            (
                true,
                true,
                vec![(3, 7, true)],
                vec![(0, 3, false), (3, 7, true), (7, 10, false)],
            ),
            (
                false,
                true,
                vec![(0, 3, true), (7, 10, true)],
                vec![(0, 3, true), (3, 7, false), (7, 10, true)],
            ),
        ] {
            let filter = [addr(3, 7, matching, allow)];
            assert_eq!(
                parts(&filter, false),
                passed,
                "matching {matching}, allow {allow}"
            );
            assert_eq!(
                parts(&filter, true),
                with_ops_filter,
                "matching {matching}, allow {allow}, ops filter"
            );
        }
    }

    #[test]
    fn first_applicable_filter_decides() {
        assert_eq!(
            parts(&[addr(4, 5, true, false), addr(3, 7, true, true)], false),
            [(3, 4, true), (5, 7, true)]
        );
        assert_eq!(
            parts(&[addr(3, 7, true, true), addr(4, 5, true, false)], false),
            [(0, 3, false), (3, 7, true), (7, 10, false)]
        );
        assert_eq!(
            parts(&[target(0, true, false), addr(3, 7, true, true)], false),
            []
        );
        assert_eq!(
            parts(&[target(1, true, false), addr(3, 7, true, true)], false),
            [(3, 7, true)]
        );
    }

    #[test]
    fn range_stays_whole_where_decision_is_constant() {
        assert_eq!(
            parts(&[addr(3, 5, true, true), addr(5, 7, true, true)], false),
            [(3, 7, true)]
        );
        assert_eq!(parts(&[addr(0, 10, true, true)], false), [(0, 10, true)]);
        assert_eq!(parts(&[target(0, true, true)], false), [(0, 10, true)]);
    }

    #[test]
    fn filter_ends_round_down_to_pages() {
        let range = AddrRange::new((3 << 12) + 5, (7 << 12) + 5);
        let filter = CoreFilter {
            kind: CoreFilterKind::Addr(range),
            matching: true,
            allow: true,
        };
        assert_eq!(parts(&[filter], false), [(3, 7, true)]);
    }
}
