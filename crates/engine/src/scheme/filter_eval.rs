//! What the core filters say about a range.

use super::filter::{CoreFilter, CoreFilterKind, Filters};
use crate::target_id::TargetId;
use thermo_units::{Addr, AddrRange};

/// What the core filters say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A filter allowed it: the ops filters are not asked any more.
    Allowed,
    /// No filter spoke, and that does not keep it out.
    Open,
    /// Left alone.
    Rejected,
}

impl Filters {
    /// Cuts `range` of `target` where the verdict changes, and hands each part on that is not rejected.
    /// Borders of address filters count from the page they lie in, as in the kernel.
    pub(super) fn parts(&self, target: TargetId, range: AddrRange, mut take: impl FnMut(AddrRange, Verdict)) {
        if self.core.is_empty() {
            return take(range, Verdict::Open);
        }
        let mut borders: Vec<Addr> = self
            .core
            .iter()
            .flat_map(borders)
            .filter(|at| range.contains(*at))
            .collect();
        borders.push(range.end);
        borders.sort_unstable();

        let mut part: Option<(AddrRange, Verdict)> = None;
        let mut start = range.start;
        for end in borders.into_iter().filter(|at| *at > range.start) {
            if start == end {
                continue;
            }
            let verdict = self.verdict(target, start);
            part = match part {
                Some((before, same)) if same == verdict => Some((
                    AddrRange {
                        start: before.start,
                        end,
                    },
                    same,
                )),
                before => {
                    hand_on(before, &mut take);
                    Some((AddrRange { start, end }, verdict))
                }
            };
            start = end;
        }
        hand_on(part, &mut take);
    }

    /// The verdict on the page at `addr`.
    fn verdict(&self, target: TargetId, addr: Addr) -> Verdict {
        let speaks = |filter: &&CoreFilter| filter.kind.is(target, addr) == filter.matching;
        match self.core.iter().find(speaks) {
            Some(filter) if filter.allow => Verdict::Allowed,
            Some(_) => Verdict::Rejected,
            // A list that ends by allowing means "only these"; with ops filters behind it the question is
            // theirs to answer.
            None if self.ops.is_empty() && self.core.last().is_some_and(|last| last.allow) => {
                Verdict::Rejected
            }
            None => Verdict::Open,
        }
    }
}

impl CoreFilterKind {
    fn is(&self, target: TargetId, addr: Addr) -> bool {
        match self {
            Self::Addr(range) => range.start.align_down() <= addr && addr < range.end.align_down(),
            Self::Target(id) => *id == target,
        }
    }
}

fn borders(filter: &CoreFilter) -> impl Iterator<Item = Addr> + use<> {
    let range = match filter.kind {
        CoreFilterKind::Addr(range) => Some(range),
        CoreFilterKind::Target(_) => None,
    };
    range
        .into_iter()
        .flat_map(|range| [range.start.align_down(), range.end.align_down()])
}

fn hand_on(part: Option<(AddrRange, Verdict)>, take: &mut impl FnMut(AddrRange, Verdict)) {
    if let Some((range, verdict)) = part
        && verdict != Verdict::Rejected
    {
        take(range, verdict);
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

    /// The parts of pages 0 to 10 of target 0 that are taken: first page, last page + 1, allowed by name.
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
        .parts(TargetId(0), AddrRange::new(0, 10 << 12), |range, verdict| {
            parts.push((
                range.start.0 >> 12,
                range.end.0 >> 12,
                verdict == Verdict::Allowed,
            ));
        });
        parts
    }

    #[test]
    fn one_filter_in_all_its_forms() {
        for (matching, allow, taken, with_ops_filter) in [
            // Whatever it does not speak of goes by the default: reject lists keep the rest …
            (
                true,
                false,
                vec![(0, 3, false), (7, 10, false)],
                vec![(0, 3, false), (7, 10, false)],
            ),
            (false, false, vec![(3, 7, false)], vec![(3, 7, false)]),
            // … and allow lists drop it, unless the ops filters still have a say.
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
            assert_eq!(parts(&filter, false), taken, "matching {matching}, allow {allow}");
            assert_eq!(
                parts(&filter, true),
                with_ops_filter,
                "matching {matching}, allow {allow}, ops filter"
            );
        }
    }

    #[test]
    fn the_first_filter_that_speaks_decides() {
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
    fn nothing_is_cut_where_nothing_changes() {
        assert_eq!(
            parts(&[addr(3, 5, true, true), addr(5, 7, true, true)], false),
            [(3, 7, true)]
        );
        assert_eq!(parts(&[addr(0, 10, true, true)], false), [(0, 10, true)]);
        assert_eq!(parts(&[target(0, true, true)], false), [(0, 10, true)]);
    }

    #[test]
    fn borders_inside_a_page_count_from_its_begin() {
        let range = AddrRange::new((3 << 12) + 5, (7 << 12) + 5);
        let filter = CoreFilter {
            kind: CoreFilterKind::Addr(range),
            matching: true,
            allow: true,
        };
        assert_eq!(parts(&[filter], false), [(3, 7, true)]);
    }
}
