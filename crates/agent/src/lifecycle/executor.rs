//! The hands: carry out what the engine orders, in small calls, and count what it came to.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use thermo_actions::hint::{Hint, Hinted, Hinter, Kind, Limits, Piece, Pieces, SkipReason};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::ops::Skip;
use thermo_engine::{Action, TargetId};
use thermo_kernel::zram::Zram;
use thermo_kernel::{ProcError, clock, maps, status};
use thermo_targets::{LayoutRule, Processes};
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

use super::app_processes::Hold;
use super::throttle::{Calls, Pace, carry_out};
use super::{Cost, End, Profile};

/// How soon a cancel ends a pause.
const ATTENTION: Duration = Duration::from_millis(5);
/// Ranges brought in by one call.
const RANGES_A_CALL: usize = 256;

/// What all jobs of a kind share.
#[derive(Debug, Clone)]
pub(super) struct Hands {
    pub root: PathBuf,
    /// The pace of the last job: the next one begins with what it learnt.
    pub pace: Pace,
}

/// One process's turn: an action on its pages of a kind.
struct Turn {
    id: TargetId,
    action: Action,
    kind: Kind,
    pieces: Pieces,
    /// What was in memory, where that is worth remembering.
    found: Vec<AddrRange>,
}

struct Reclaiming<'a> {
    processes: &'a Processes,
    anon: Hinter,
    file: Hinter,
    /// The last is next.
    turns: Vec<Turn>,
    /// Turns that came to their end.
    over: Vec<Turn>,
    sum: Sum,
}

/// What calls came to so far.
struct Sum {
    cost: Cost,
    since: Nanos,
    refused: Option<String>,
}

impl Hands {
    /// Reclaims from the processes of `hold` by `profile`, until done or until `cancel` is true. `since` is when the
    /// word that caused it was heard.
    pub(super) fn reclaim(
        &mut self,
        hold: &mut Hold,
        profile: Profile,
        swap_floor: Permille,
        since: Nanos,
        cancel: &AtomicBool,
    ) -> Cost {
        let mut sum = Sum::begin(since);
        let meter = Meter::begin(&self.root);
        let turns = self.turns(hold.processes(), profile, &mut sum);
        let hinter = |kind| {
            let limits = PageoutLimits {
                swap_floor,
                ..PageoutLimits::default()
            };
            Hinter::new(Actor::new(limits, false), Limits::default()).only(kind)
        };
        let mut work = Reclaiming {
            processes: hold.processes(),
            anon: hinter(Kind::Anon),
            file: hinter(Kind::File),
            turns,
            over: Vec::new(),
            sum,
        };
        let done = carry_out(&mut work, &mut self.pace, cancel);
        let Reclaiming { turns, over, sum, .. } = work;
        for (turn, to_the_end) in over
            .into_iter()
            .map(|turn| (turn, true))
            .chain(turns.into_iter().map(|turn| (turn, false)))
        {
            if turn.action == Action::Pageout && turn.kind == Kind::Anon {
                hold.gone_through(turn.id, turn.found, to_the_end);
            }
        }
        let mut cost = meter.end(sum, done);
        cost.anon_rss_after = Some(self.anon_rss(hold.processes()));
        cost.working_set = hold.working_set();
        cost
    }

    /// Brings in what the processes of `hold` used last time.
    pub(super) fn prefetch(&self, hold: &Hold, since: Nanos, cancel: &AtomicBool) -> Cost {
        let meter = Meter::begin(&self.root);
        let hints = hold.used().iter().flat_map(|(id, ranges)| {
            ranges.iter().map(|range| Hint {
                target: *id,
                range: *range,
                action: Action::Willneed,
            })
        });
        let mut hints: Vec<Hint> = hints.collect();
        hints.reverse();
        let mut work = Bringing {
            processes: hold.processes(),
            hinter: Hinter::new(Actor::new(PageoutLimits::default(), false), Limits::default()),
            hints,
            sum: Sum::begin(since),
        };
        // Somebody waits for it: no pauses.
        let done = carry_out(&mut work, &mut Pace::new(Permille(1000)), cancel);
        let mut cost = meter.end(work.sum, done);
        cost.working_set = hold.working_set();
        cost
    }

    fn turns(&self, processes: &Processes, profile: Profile, sum: &mut Sum) -> Vec<Turn> {
        let mut turns = Vec::new();
        for (action, kind) in profile.steps() {
            for process in processes.values() {
                let pieces = maps::read(&self.root, process.pid).and_then(|mappings| {
                    let ranges = LayoutRule::Mappings.ranges(&mappings);
                    Pieces::open(&self.root, process.pid, ranges, Some(*kind))
                });
                match pieces {
                    Ok(pieces) => turns.push(Turn {
                        id: process.id,
                        action: *action,
                        kind: *kind,
                        pieces,
                        found: Vec::new(),
                    }),
                    Err(ProcError::Gone { .. }) => {}
                    Err(why) => sum.refuse(&format!("process {} cannot be looked into: {why}", process.pid)),
                }
            }
        }
        turns.reverse();
        turns
    }

    fn anon_rss(&self, processes: &Processes) -> Bytes {
        let of_each = processes
            .values()
            .filter_map(|process| status::read(&self.root, process.pid).ok());
        of_each.map(|status| status.rss_anon).sum()
    }
}

impl Reclaiming<'_> {
    fn give(&mut self, turn: &Turn, piece: &Piece) -> Nanos {
        let hinter = if turn.kind == Kind::Anon {
            &mut self.anon
        } else {
            &mut self.file
        };
        let hint = Hint {
            target: turn.id,
            range: piece.range,
            action: turn.action,
        };
        let began = clock::monotonic();
        let given = hinter.give(self.processes, &[hint]);
        let time = clock::monotonic().saturating_sub(began);
        self.sum.add(&given, time);
        time
    }
}

impl Calls for Reclaiming<'_> {
    fn call(&mut self, most: Bytes) -> Option<(Bytes, Nanos)> {
        while let Some(mut turn) = self.turns.pop() {
            // One that refuses once refuses always.
            let next = if self.sum.refused.is_some() {
                None
            } else {
                turn.pieces.next(most)
            };
            let Some(piece) = next else {
                self.over.push(turn);
                continue;
            };
            let time = if piece.there > Bytes::ZERO {
                self.give(&turn, &piece)
            } else {
                Nanos::ZERO
            };
            let there = piece.there;
            turn.found.extend(piece.pages);
            self.turns.push(turn);
            return Some((there, time));
        }
        None
    }

    fn pause(&mut self, time: Nanos, cancel: &AtomicBool) {
        pause(time, cancel);
    }
}

struct Bringing<'a> {
    processes: &'a Processes,
    hinter: Hinter,
    /// The last is next.
    hints: Vec<Hint>,
    sum: Sum,
}

impl Calls for Bringing<'_> {
    fn call(&mut self, most: Bytes) -> Option<(Bytes, Nanos)> {
        let mut call = Vec::new();
        let mut bytes = Bytes::ZERO;
        while call.len() < RANGES_A_CALL && bytes < most {
            let Some(mut hint) = self.hints.pop() else { break };
            let room = most.saturating_sub(bytes);
            if hint.range.len() > room {
                let end = hint.range.start + room;
                self.hints.push(Hint {
                    range: AddrRange {
                        start: end,
                        ..hint.range
                    },
                    ..hint
                });
                hint.range.end = end;
            }
            bytes += hint.range.len();
            call.push(hint);
        }
        if call.is_empty() {
            return None;
        }
        let began = clock::monotonic();
        let given = self.hinter.give(self.processes, &call);
        let time = clock::monotonic().saturating_sub(began);
        self.sum.add(&given, time);
        Some((bytes, time))
    }

    fn pause(&mut self, time: Nanos, cancel: &AtomicBool) {
        pause(time, cancel);
    }
}

impl Sum {
    const fn begin(since: Nanos) -> Self {
        Self {
            cost: Cost::of_nothing(End::Done),
            since,
            refused: None,
        }
    }

    fn add(&mut self, given: &[Hinted], time: Nanos) {
        let cost = &mut self.cost;
        cost.calls += 1;
        cost.longest_call = cost.longest_call.max(time);
        for hinted in given {
            cost.advised += hinted.advised;
            cost.freed += hinted.changed.unwrap_or_default();
            let refused = |(why, _): &(SkipReason, Bytes)| {
                matches!(why, SkipReason::Skip(Skip::Refused) | SkipReason::Unsupported)
            };
            if let Some(why) = hinted.error.as_ref().filter(|_| hinted.left.iter().any(refused)) {
                self.refused.get_or_insert_with(|| why.clone());
            }
        }
        if cost.freed > Bytes::ZERO && cost.reaction.is_none() {
            cost.reaction = Some(clock::monotonic().saturating_sub(self.since));
        }
    }

    fn refuse(&mut self, why: &str) {
        self.refused.get_or_insert_with(|| why.to_owned());
    }
}

/// What is read before and after.
struct Meter<'a> {
    root: &'a Path,
    began: Nanos,
    cpu: Nanos,
    compressed: Option<Bytes>,
}

impl<'a> Meter<'a> {
    fn begin(root: &'a Path) -> Self {
        Self {
            root,
            began: clock::monotonic(),
            cpu: clock::thread_cpu(),
            compressed: compressed(root),
        }
    }

    fn end(self, sum: Sum, done: bool) -> Cost {
        let mut cost = sum.cost;
        cost.end = match sum.refused {
            Some(why) => End::Failed(why),
            None if done => End::Done,
            None => End::Cancelled,
        };
        cost.elapsed = clock::monotonic().saturating_sub(self.began);
        cost.cpu = clock::thread_cpu().saturating_sub(self.cpu);
        let after = compressed(self.root);
        cost.compressed_growth = self
            .compressed
            .zip(after)
            .map(|(before, after)| after.saturating_sub(before));
        cost
    }
}

/// What all zram devices take of memory.
fn compressed(root: &Path) -> Option<Bytes> {
    let entries = std::fs::read_dir(root.join("sys/block")).ok()?;
    let id = |name: std::ffi::OsString| name.to_str()?.strip_prefix("zram")?.parse::<u32>().ok();
    let ids = entries.flatten().filter_map(|entry| id(entry.file_name()));
    let used: Vec<Bytes> = ids
        .filter_map(|id| Zram { id }.mm_stat(root).ok())
        .map(|stat| stat.mem_used)
        .collect();
    (!used.is_empty()).then(|| used.into_iter().sum())
}

fn pause(time: Nanos, cancel: &AtomicBool) {
    let end = clock::monotonic() + time;
    loop {
        let left = Duration::from_nanos(end.saturating_sub(clock::monotonic()).0);
        if left.is_zero() || cancel.load(Ordering::Acquire) {
            return;
        }
        thread::sleep(left.min(ATTENTION));
    }
}
