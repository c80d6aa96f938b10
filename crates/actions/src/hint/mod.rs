//! Hints: a program that knows how other processes are used requests actions on their memory.
//!
//! The interface is that of the `process_madvise()` patches of 2019: a vector of ranges, each with its own
//! action and its own result. The patches' `COLD` (reclaim now) is `pageout` today, their `COOL` (deactivate)
//! is `cold`. A hint applies to its whole range, accessed or not. Finding idle memory is the job of
//! monitoring.
//!
//! The [`Actor`] works in steps of 64 MiB, with system calls of at most 1024 ranges and 2 GiB. Consecutive
//! small ranges with the same process and action share a step; large ranges take several steps. Memory that
//! the kernel refuses is skipped. Limits and the cancel flag are checked between steps.
//!
//! # Example
//! Page out at most 64 MiB of a process's anonymous memory:
//!
//! ```no_run
//! use std::path::Path;
//! use thermo_engine::{Action, TargetId};
//! use thermo_actions::hint::{Hint, Hinter, Limits, PageKind, Selection};
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
//! let mut hinter = Hinter::new(Actor::new(PageoutLimits::default(), false), limits).only(PageKind::Anon);
//! for result in hinter.give(&processes, &hints) {
//!     println!("{} advised, {:?} changed", result.advised, result.changed);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod fit_prefix;
mod limits;
mod page_kind;
mod resident_chunks;
mod result;
mod selection;

pub use limits::Limits;
pub use page_kind::PageKind;
pub use resident_chunks::{ResidentChunk, ResidentChunks};
pub use result::{HintResult, SkipReason};
pub use selection::Selection;

use std::path::{Path, PathBuf};

use thermo_engine::ops::{Applied, Request, Skip, TargetRange};
use thermo_engine::scheme::{OpsFilter, OpsFilterKind};
use thermo_engine::{Action, OpsError, TargetId};
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::process_madvise::MAX_RANGES;
use thermo_targets::{PageInspector, Processes};
use thermo_units::{AddrRange, Bytes};

use self::limits::Spent;
use crate::actor::Actor;

/// Bytes processed between two checks of the limits.
const STEP: Bytes = Bytes::mib(64);

/// An action on one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// The process.
    pub target: TargetId,
    /// The addresses. Pages that lie only partly in the range are skipped.
    pub range: AddrRange,
    /// The action.
    pub action: Action,
}

/// Applies hints within limits.
#[derive(Debug)]
pub struct Hinter {
    root: PathBuf,
    actor: Actor,
    limits: Limits,
    only: Option<PageKind>,
    young: Option<Box<dyn PageInspector>>,
}

impl Hinter {
    /// Hints are applied by `actor` within `limits`. [`Actor::cancel_flag`] stops them.
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

    /// Skips all pages of the other kind.
    #[must_use]
    pub fn only(mut self, kind: PageKind) -> Self {
        self.only = Some(kind);
        self
    }

    /// Skips pages whose accessed bit is set when the hint is applied. Reclaim and monitors clear accessed
    /// bits. Where neither ran lately, most pages that were ever accessed are young.
    #[must_use]
    pub fn skip_young(mut self, tables: impl PageInspector + 'static) -> Self {
        self.young = Some(Box::new(tables));
        self
    }

    /// Applies all `hints` in order and returns one result per hint. A hint that fails does not stop the
    /// others.
    pub fn give(&mut self, processes: &Processes, hints: &[Hint]) -> Vec<HintResult> {
        let mut spent = Spent::begin(self.limits);
        let mut results = Vec::with_capacity(hints.len());
        while results.len() < hints.len() {
            let rest = &hints[results.len()..];
            match self.batch_len(rest) {
                0 | 1 => results.push(self.apply_one(processes, &rest[0], &mut spent)),
                nr => self.apply_batch(processes, &rest[..nr], &spent, &mut results),
            }
        }
        results
    }

    /// The number of leading hints that can share a step: same process and action, at most [`STEP`] bytes.
    /// With a byte limit each hint takes a step of its own, because its bytes must be counted first.
    fn batch_len(&self, hints: &[Hint]) -> usize {
        if self.limits.max_bytes.is_some() {
            return 1;
        }
        let mut sum = Bytes::ZERO;
        let fits = |hint: &&Hint| {
            sum += hint.range.len();
            hints[0].target == hint.target && hints[0].action == hint.action && sum <= STEP
        };
        hints.iter().take(MAX_RANGES).take_while(fits).count()
    }

    fn apply_batch(
        &mut self,
        processes: &Processes,
        hints: &[Hint],
        spent: &Spent,
        results: &mut Vec<HintResult>,
    ) {
        if let Some(why) = spent.exhausted() {
            let skipped = |hint: &Hint| HintResult::filled(|result| result.skip(why, hint.range.len()));
            return results.extend(hints.iter().map(skipped));
        }
        let target_range = |hint: &Hint| TargetRange {
            target: hint.target,
            range: hint.range,
        };
        let ranges: Vec<TargetRange> = hints.iter().map(target_range).collect();
        match self.apply(processes, hints[0].action, &ranges) {
            Ok(applied) => {
                let added = |applied| HintResult::filled(|result| result.add(applied));
                results.extend(applied.iter().map(added));
            }
            Err(why) => {
                let failed = |hint: &Hint| HintResult::filled(|result| result.fail(&why, hint.range.len()));
                results.extend(hints.iter().map(failed));
            }
        }
    }

    fn apply_one(&mut self, processes: &Processes, hint: &Hint, spent: &mut Spent) -> HintResult {
        let mut result = HintResult::default();
        let mut rest = hint.range;
        while !rest.is_empty() {
            if let Some(why) = spent.exhausted() {
                result.skip(why, rest.len());
                break;
            }
            let (step, eligible) = self.step(processes, hint, rest, spent.bytes_left());
            let range = TargetRange {
                target: hint.target,
                range: step,
            };
            let applied = self.apply(processes, hint.action, &[range]);
            match applied.map(|mut all| all.pop().unwrap_or_default()) {
                Ok(applied) => {
                    // The actor only estimates large ranges; `eligible` was counted.
                    if applied.applied + dry_run_bytes(&applied) > Bytes::ZERO {
                        spent.spend(eligible);
                    }
                    result.add(&applied);
                }
                Err(why) => {
                    result.fail(&why, rest.len());
                    break;
                }
            }
            rest.start = step.end;
        }
        result
    }

    /// The next part of `rest` that fits `bytes_left`, and its eligible bytes. Without a byte limit the bytes
    /// are not counted.
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
            Some(pagemap) => fit_prefix::fit_prefix(&pagemap, step, left, hint.action, self.only),
            None => (step, Bytes::ZERO),
        }
    }

    fn apply(
        &mut self,
        processes: &Processes,
        action: Action,
        ranges: &[TargetRange],
    ) -> Result<Vec<Applied>, OpsError> {
        let other_kind = self.only.map(|kind| OpsFilter {
            kind: OpsFilterKind::Anon,
            matching: kind == PageKind::File,
            allow: false,
        });
        let young = self.young.as_ref().map(|_| OpsFilter {
            kind: OpsFilterKind::Young,
            matching: true,
            allow: false,
        });
        let filters: Vec<OpsFilter> = other_kind.into_iter().chain(young).collect();
        let request = Request {
            action,
            ranges,
            filters: &filters,
            destinations: &[],
        };
        Ok(self
            .actor
            .apply(processes, &request, self.young.as_deref_mut())?
            .results)
    }
}

/// Bytes that only the dry run kept from being acted on. They count towards the byte limit.
fn dry_run_bytes(applied: &Applied) -> Bytes {
    let dry_run = applied.skipped.iter().filter(|(why, _)| *why == Skip::DryRun);
    dry_run.map(|(_, bytes)| *bytes).sum()
}
