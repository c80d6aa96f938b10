//! A round: every page of every target looked at once, a piece at a time; or another look where much changed.

use std::collections::BTreeSet;

use super::piece::{Piece, Preparation};
use crate::addr::{Addr, AddrRange};
use crate::budget::Way;
use crate::monitoring::Target;
use crate::ops::{Operations, Run, TargetId};
use crate::units::Nanos;

/// Most pieces looked at in one go, so that hundreds of small targets do not each cost a step.
const PIECES: usize = 32;

/// Where a round is. Targets may come and go while it runs: it goes by their names, which ascend.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) began: Nanos,
    target: TargetId,
    from: Addr,
    piece: Piece,
    preparing: Preparing,
    /// Which targets it is of.
    of: Of,
    /// What is looked at, last first, where that is not all.
    only: Option<Vec<Run>>,
}

/// Which targets a round is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// All, also those that are sampled meanwhile.
    All,
    /// Those that are told of by their pages.
    Swept,
}

impl Of {
    fn includes(self, target: &Target) -> bool {
        self == Self::All || target.way == Way::Sweep
    }
}

/// Where the preparation of a round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preparing {
    Begins,
    GoesOn,
    Done,
}

impl Round {
    pub(crate) fn begin(now: Nanos, of: Of) -> Self {
        Self {
            of,
            began: now,
            target: TargetId(0),
            from: Addr(0),
            piece: Piece::default(),
            preparing: Preparing::Begins,
            only: None,
        }
    }

    /// Another look at what changed in the round before and at what is around it, in pieces of `most` bytes; also at the
    /// pieces with what was touched all the time, whose place that may have taken.
    pub(crate) fn again(now: Nanos, most: u64, targets: &[Target]) -> Self {
        let mut only: Vec<Run> = Vec::new();
        for target in targets.iter().rev().filter(|target| Of::Swept.includes(target)) {
            let ranges = || target.ranges.iter();
            let around = ranges().flat_map(|range| target.heat.around_changes(*range));
            let steady = ranges().flat_map(|range| target.heat.steady(*range));
            let pieces: BTreeSet<u64> = around
                .chain(steady)
                .flat_map(|range| range.start.0 / most..range.end.0.div_ceil(most))
                .collect();
            only.extend(pieces.iter().rev().map(|nth| Run {
                target: target.id,
                range: AddrRange::new(nth * most, (nth + 1) * most),
            }));
        }
        Self {
            preparing: Preparing::Done,
            only: Some(only),
            ..Self::begin(now, Of::Swept)
        }
    }

    /// Goes on after a pause. What is seen for the first time counts from now.
    pub(crate) const fn go_on(&mut self, now: Nanos) {
        self.began = now;
    }

    /// Lets the operations do the next part of what comes before the first piece.
    pub(crate) fn prepare(&mut self, ops: &mut dyn Operations) -> Preparation {
        if self.preparing == Preparing::Done {
            return Preparation::Ready;
        }
        let preparation = ops.prepare_round(self.preparing == Preparing::Begins);
        self.preparing = match preparation {
            Preparation::Ready => Preparing::Done,
            Preparation::Part(_) => Preparing::GoesOn,
        };
        preparation
    }

    /// Looks at `most` bytes of memory, a multiple of what a page-table page maps, or a little less; false when
    /// nothing was left to look at.
    pub(crate) fn look_on(&mut self, most: u64, targets: &mut [Target], ops: &mut dyn Operations) -> bool {
        let mut looked_at = 0;
        for _ in 0..PIECES {
            let next = match &mut self.only {
                Some(only) => next_of(only, targets),
                None => self.next_piece(most, targets),
            };
            let Some((target, run)) = next else {
                return looked_at > 0;
            };
            self.piece.reset(run.range);
            match self.only {
                Some(_) => {
                    let parts = from(&target.ranges, run.range.start)
                        .map_while(|range| range.intersection(&run.range));
                    let around = parts.flat_map(|part| target.heat.around_changes(part));
                    self.piece.ask_only(around);
                }
                None => target.heat.tell_steady(&mut self.piece),
            }
            let next = ops.sweep(&run, &mut self.piece).next.max(run.range.end);
            target.heat.take_in(&self.piece, self.began);
            target.heat.forget(AddrRange {
                start: run.range.end,
                end: next,
            });
            self.from = next;
            looked_at += run.range.len().0;
            if looked_at >= most {
                break;
            }
        }
        true
    }

    fn next_piece<'a>(&mut self, most: u64, targets: &'a mut [Target]) -> Option<(&'a mut Target, Run)> {
        loop {
            let comes = |target: &Target| target.id >= self.target && self.of.includes(target);
            let nth = targets.iter().position(comes)?;
            let target = &targets[nth];
            if target.id > self.target {
                (self.target, self.from) = (target.id, Addr(0));
            }
            let range = from(&target.ranges, self.from).next().copied();
            if let Some(range) = range {
                let start = range.start.max(self.from);
                // Pieces end at multiples of their size, so that they never part a page-table page.
                let border = Addr((start.0 / most + 1) * most);
                let run = Run {
                    target: target.id,
                    range: AddrRange {
                        start,
                        end: range.end.min(border),
                    },
                };
                return targets.get_mut(nth).map(|target| (target, run));
            }
            (self.target, self.from) = (TargetId(self.target.0 + 1), Addr(0));
        }
    }
}

/// Those of `ranges`, which ascend and may be a million, that end behind `addr`.
fn from(ranges: &[AddrRange], addr: Addr) -> impl Iterator<Item = &AddrRange> {
    let first = ranges.partition_point(|range| range.end <= addr);
    ranges[first..].iter()
}

/// What comes next of `only`, last first, of a target that is there still.
fn next_of<'a>(only: &mut Vec<Run>, targets: &'a mut [Target]) -> Option<(&'a mut Target, Run)> {
    loop {
        let run = only.pop()?;
        if let Some(nth) = targets.iter().position(|target| target.id == run.target) {
            return Some((&mut targets[nth], run));
        }
    }
}
