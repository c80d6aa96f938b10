//! Hints: one program, which knows what others are used for, says what should become of their memory; now, and
//! range by range.
//!
//! It is the interface that the `process_madvise()` patches of 2019 proposed: a vector of ranges, each with its own
//! action and its own result. Their `COLD` (reclaim now) is `pageout` today, their `COOL` (deactivate) is `cold`.
//! A hint acts on everything it names, touched or not; what was idle is found out by monitoring.
//!
//! Each range is carried out by the [`Actor`] in steps of 64 MiB, each in system calls of at most 1024 ranges, past what
//! the kernel refuses. Between steps the limits are looked at, and whether it was cancelled.
//!
//! # Example
//! Page out the anonymous memory of a process, at most 64 MiB of it:
//!
//! ```no_run
//! use std::path::Path;
//! use thermo_core::{Action, Bytes, TargetId};
//! use thermo_ops::hint::{Hint, Hinter, Kind, Limits, Selection};
//! use thermo_ops::{Actor, PageoutLimits, Process, Processes};
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

mod limits;
mod reach;
mod result;
mod selection;

pub use limits::Limits;
pub use result::{Hinted, Left};
pub use selection::Selection;

use std::path::{Path, PathBuf};

use thermo_core::ops::{Applied, Request, Run, Skip};
use thermo_core::scheme::{OpsFilter, OpsFilterKind};
use thermo_core::{Action, AddrRange, Bytes, OpsError, TargetId};
use thermo_sys::pagemap::Pagemap;

use self::limits::Account;
use crate::actor::Actor;
use crate::process::Processes;

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

/// A kind of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Anonymous ones.
    Anon,
    /// Those of files, and shared memory.
    File,
}

/// Gives hints within limits.
#[derive(Debug)]
pub struct Hinter {
    root: PathBuf,
    actor: Actor,
    limits: Limits,
    only: Option<Kind>,
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
        }
    }

    /// Leaves all pages alone that are not of this kind.
    #[must_use]
    pub fn only(mut self, kind: Kind) -> Self {
        self.only = Some(kind);
        self
    }

    /// Gives all `hints` in their order, and tells of each what came of it. What cannot be done to one does not keep
    /// the others from being done.
    pub fn give(&mut self, processes: &Processes, hints: &[Hint]) -> Vec<Hinted> {
        let mut account = Account::begin(self.limits);
        hints
            .iter()
            .map(|hint| self.one(processes, hint, &mut account))
            .collect()
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
            match self.apply(processes, hint, step) {
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

    fn apply(&mut self, processes: &Processes, hint: &Hint, range: AddrRange) -> Result<Applied, OpsError> {
        let run = Run {
            target: hint.target,
            range,
        };
        let others = self.only.map(|kind| OpsFilter {
            kind: OpsFilterKind::Anon,
            matching: kind == Kind::File,
            allow: false,
        });
        let request = Request {
            action: hint.action,
            runs: &[run],
            filters: others.as_slice(),
        };
        let outcome = self.actor.apply(processes, &request, None)?;
        Ok(outcome.runs.into_iter().next().unwrap_or_default())
    }
}

/// What would have been done, had it not been a dry run: it counts as done.
fn dry(applied: &Applied) -> Bytes {
    let of_dry = applied.skipped.iter().filter(|(why, _)| *why == Skip::DryRun);
    of_dry.map(|(_, bytes)| *bytes).sum()
}
