//! Hints: one program, which knows what others are used for, says what should become of their memory; now, and
//! range by range.
//!
//! It is the interface that the `process_madvise()` patches of 2019 proposed: a vector of ranges, each with its own
//! action and its own result. Their `COLD` (reclaim now) is `pageout` today, their `COOL` (deactivate) is `cold`.
//! A hint acts on everything it names, touched or not; what was idle is found out by monitoring.
//!
//! Ranges are carried out by the [`Actor`] in steps of 64 MiB, each in system calls of at most 1024 ranges and 2 GiB,
//! past what the kernel refuses: small ranges that follow each other with one action for one process together, large
//! ones in pieces. Between steps the limits are looked at, and whether it was cancelled.
//!
//! # Example
//! Page out the anonymous memory of a process, at most 64 MiB of it:
//!
//! ```no_run
//! use std::path::Path;
//! use thermo_engine::{Action, TargetId};
//! use thermo_actions::hint::{Hint, Hinter, Kind, Limits, Selection};
//! use thermo_actions::{Actor, PageoutLimits};
//! use thermo_targets::{Process, Processes};
//! use thermo_units::Bytes;
//!
//! let id = TargetId(0);
//! let processes = Processes::from([(id, Process::open(id, 4242)?)]);
//! let ranges = Selection::default().ranges(Path::new("/"), 4242)?;
//! let action = Action::Pageout;
//! let hints: Vec<Hint> = ranges.into_iter().map(|range| Hint { target: id, range, action }).collect();
//! let limits = Limits { max_bytes: Some(Bytes::mib(64)), ..Limits::default() };
//! let mut hinter = Hinter::new(Actor::new(PageoutLimits::default(), false), limits).only(Kind::Anon);
//! for hinted in hinter.give(&processes, &hints) {
//!     println!("{} advised, {:?} changed", hinted.advised, hinted.changed);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod kind;
mod limits;
mod pieces;
mod reach;
mod result;
mod selection;

pub use kind::Kind;
pub use limits::Limits;
pub use pieces::{Piece, Pieces};
pub use result::{Hinted, SkipReason};
pub use selection::Selection;

use std::path::{Path, PathBuf};

use thermo_engine::ops::{Applied, Request, Skip, TargetRange};
use thermo_engine::scheme::{OpsFilter, OpsFilterKind};
use thermo_engine::{Action, OpsError, TargetId};
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::process_madvise::MAX_RANGES;
use thermo_targets::{PageInspector, Processes};
use thermo_units::{AddrRange, Bytes};

use self::limits::Account;
use crate::actor::Actor;

/// How much is done between two looks at the limits.
const STEP: Bytes = Bytes::mib(64);

/// What should become of one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// In which process.
    pub target: TargetId,
    /// Where. Pages that lie in it only in part are left alone.
    pub range: AddrRange,
    /// What to do.
    pub action: Action,
}

/// Gives hints within limits.
#[derive(Debug)]
pub struct Hinter {
    root: PathBuf,
    actor: Actor,
    limits: Limits,
    only: Option<Kind>,
    young: Option<Box<dyn PageInspector>>,
}

impl Hinter {
    /// Hints are carried out by `actor`, whose [`Actor::cancel_flag`] stops them, all together within `limits`.
    #[must_use]
    pub fn new(actor: Actor, limits: Limits) -> Self {
        Self {
            root: Path::new("/").to_owned(),
            actor,
            limits,
            only: None,
            young: None,
        }
    }

    /// Leaves all pages alone that are not of this kind.
    #[must_use]
    pub fn only(mut self, kind: Kind) -> Self {
        self.only = Some(kind);
        self
    }

    /// Leaves all pages alone whose accessed mark is set when their turn comes. A mark is taken off by the kernel when
    /// it looks for memory to reclaim, and by monitors: where neither happened lately, most of what was ever touched
    /// is young.
    #[must_use]
    pub fn skip_young(mut self, tables: impl PageInspector + 'static) -> Self {
        self.young = Some(Box::new(tables));
        self
    }

    /// Gives all `hints` in their order, and tells of each what came of it. What cannot be done to one does not keep
    /// the others from being done.
    pub fn give(&mut self, processes: &Processes, hints: &[Hint]) -> Vec<Hinted> {
        let mut account = Account::begin(self.limits);
        let mut given = Vec::with_capacity(hints.len());
        while given.len() < hints.len() {
            let rest = &hints[given.len()..];
            match self.nr_together(rest) {
                0 | 1 => given.push(self.one(processes, &rest[0], &mut account)),
                nr => self.together(processes, &rest[..nr], &account, &mut given),
            }
        }
        given
    }

    /// How many of the first hints can be given as one: those of one action for one process, as much as is done
    /// between two looks at the limits. Where bytes are limited each has to be counted by itself.
    fn nr_together(&self, hints: &[Hint]) -> usize {
        if self.limits.max_bytes.is_some() {
            return 1;
        }
        let mut sum = Bytes::ZERO;
        let alike = |hint: &&Hint| {
            sum += hint.range.len();
            hints[0].target == hint.target && hints[0].action == hint.action && sum <= STEP
        };
        hints.iter().take(MAX_RANGES).take_while(alike).count()
    }

    fn together(
        &mut self,
        processes: &Processes,
        hints: &[Hint],
        account: &Account,
        given: &mut Vec<Hinted>,
    ) {
        if let Some(why) = account.exhausted() {
            let left = |hint: &Hint| Hinted::of(|hinted| hinted.leave(why, hint.range.len()));
            return given.extend(hints.iter().map(left));
        }
        let run = |hint: &Hint| TargetRange {
            target: hint.target,
            range: hint.range,
        };
        let runs: Vec<TargetRange> = hints.iter().map(run).collect();
        match self.apply(processes, hints[0].action, &runs) {
            Ok(applied) => {
                let added = |applied| Hinted::of(|hinted| hinted.add(applied));
                given.extend(applied.iter().map(added));
            }
            Err(why) => {
                let failed = |hint: &Hint| Hinted::of(|hinted| hinted.fail(&why, hint.range.len()));
                given.extend(hints.iter().map(failed));
            }
        }
    }

    fn one(&mut self, processes: &Processes, hint: &Hint, account: &mut Account) -> Hinted {
        let mut hinted = Hinted::default();
        let mut rest = hint.range;
        while !rest.is_empty() {
            if let Some(why) = account.exhausted() {
                hinted.leave(why, rest.len());
                break;
            }
            let (step, holds) = self.step(processes, hint, rest, account.bytes_left());
            let run = TargetRange {
                target: hint.target,
                range: step,
            };
            let done = self.apply(processes, hint.action, &[run]);
            match done.map(|mut all| all.pop().unwrap_or_default()) {
                Ok(applied) => {
                    // Of large ranges the actor estimates; what they hold was counted.
                    if applied.applied + dry(&applied) > Bytes::ZERO {
                        account.spend(holds);
                    }
                    hinted.add(&applied);
                }
                Err(why) => {
                    hinted.fail(&why, rest.len());
                    break;
                }
            }
            rest.start = step.end;
        }
        hinted
    }

    /// The next piece of `rest`: as much as may be done with `bytes_left`; and what it holds, where that counts.
    fn step(
        &self,
        processes: &Processes,
        hint: &Hint,
        rest: AddrRange,
        bytes_left: Option<Bytes>,
    ) -> (AddrRange, Bytes) {
        let end = rest.end.min(rest.start + STEP);
        let step = AddrRange { end, ..rest };
        let Some(left) = bytes_left else {
            return (step, Bytes::ZERO);
        };
        let pagemap = processes
            .get(&hint.target)
            .and_then(|process| Pagemap::open(&self.root, process.pid).ok());
        match pagemap {
            Some(pagemap) => reach::reach(&pagemap, step, left, hint.action, self.only),
            None => (step, Bytes::ZERO),
        }
    }

    fn apply(
        &mut self,
        processes: &Processes,
        action: Action,
        runs: &[TargetRange],
    ) -> Result<Vec<Applied>, OpsError> {
        let others = self.only.map(|kind| OpsFilter {
            kind: OpsFilterKind::Anon,
            matching: kind == Kind::File,
            allow: false,
        });
        let young = self.young.as_ref().map(|_| OpsFilter {
            kind: OpsFilterKind::Young,
            matching: true,
            allow: false,
        });
        let filters: Vec<OpsFilter> = others.into_iter().chain(young).collect();
        let request = Request {
            action,
            runs,
            filters: &filters,
        };
        Ok(self
            .actor
            .apply(processes, &request, self.young.as_deref_mut())?
            .runs)
    }
}

/// What would have been done, had it not been a dry run: it counts as done.
fn dry(applied: &Applied) -> Bytes {
    let of_dry = applied.skipped.iter().filter(|(why, _)| *why == Skip::DryRun);
    of_dry.map(|(_, bytes)| *bytes).sum()
}
