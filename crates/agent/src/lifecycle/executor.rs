//! Executes the engine's orders in small calls and measures their results.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use thermo_actions::hint::{
    Hint, HintResult, Hinter, Limits, PageKind, ResidentChunk, ResidentChunks, SkipReason,
};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::ops::Skip;
use thermo_engine::{Action, TargetId};
use thermo_kernel::zram::Zram;
use thermo_kernel::{ProcError, clock, maps, status};
use thermo_targets::{LayoutRule, Processes};
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

use super::app_processes::AppProcesses;
use super::throttle::{CallThrottle, ThrottledJob, run_throttled};
use super::{JobCost, Outcome, Profile};

/// Maximum delay until a cancel ends a pause.
const CANCEL_POLL: Duration = Duration::from_millis(5);
/// Maximum number of ranges prefetched by one call.
const RANGES_PER_CALL: usize = 256;

/// Executes jobs.
#[derive(Debug, Clone)]
pub(super) struct Executor {
    pub root: PathBuf,
    /// The throttle of the last job. The next job starts with the call durations it learned.
    pub throttle: CallThrottle,
}

/// An action on the pages of one kind of one process.
struct ProcessStep {
    id: TargetId,
    action: Action,
    kind: PageKind,
    pieces: ResidentChunks,
    /// Ranges found resident so far.
    resident: Vec<AddrRange>,
}

struct ReclaimJob<'a> {
    processes: &'a Processes,
    anon: Hinter,
    file: Hinter,
    /// Remaining steps, the next one last.
    steps: Vec<ProcessStep>,
    finished: Vec<ProcessStep>,
    totals: Totals,
}

/// Totals over the calls of a job.
struct Totals {
    cost: JobCost,
    since: Nanos,
    /// Reason of the first refusal.
    refused: Option<String>,
}

impl Executor {
    /// Reclaims from the processes of an application with `profile` until all memory is processed or `cancel`
    /// is true. `since` is the time of the event that caused the job.
    pub(super) fn reclaim(
        &mut self,
        app: &mut AppProcesses,
        profile: Profile,
        swap_floor: Permille,
        since: Nanos,
        cancel: &AtomicBool,
    ) -> JobCost {
        let mut totals = Totals::new(since);
        let meter = JobMeter::start(&self.root);
        let steps = self.steps(app.processes(), profile, &mut totals);
        let hinter = |kind| {
            let limits = PageoutLimits {
                swap_floor,
                ..PageoutLimits::default()
            };
            Hinter::new(Actor::new(limits, false), Limits::default()).only(kind)
        };
        let mut job = ReclaimJob {
            processes: app.processes(),
            anon: hinter(PageKind::Anon),
            file: hinter(PageKind::File),
            steps,
            finished: Vec::new(),
            totals,
        };
        let done = run_throttled(&mut job, &mut self.throttle, cancel);
        let ReclaimJob {
            steps,
            finished,
            totals,
            ..
        } = job;
        let finished = finished.into_iter().map(|step| (step, true));
        for (step, complete) in finished.chain(steps.into_iter().map(|step| (step, false))) {
            if step.action == Action::Pageout && step.kind == PageKind::Anon {
                app.record_pageout(step.id, step.resident, complete);
            }
        }
        let mut cost = meter.stop(totals, done);
        cost.anon_rss_after = Some(self.anon_rss(app.processes()));
        cost.working_set = app.working_set();
        cost
    }

    /// Reads in the working sets of the processes of an application.
    pub(super) fn prefetch(&self, app: &AppProcesses, since: Nanos, cancel: &AtomicBool) -> JobCost {
        let meter = JobMeter::start(&self.root);
        let hints = app.working_sets().iter().flat_map(|(id, ranges)| {
            ranges.iter().map(|range| Hint {
                target: *id,
                range: *range,
                action: Action::Willneed,
            })
        });
        let mut hints: Vec<Hint> = hints.collect();
        hints.reverse();
        let mut job = PrefetchJob {
            processes: app.processes(),
            hinter: Hinter::new(Actor::new(PageoutLimits::default(), false), Limits::default()),
            hints,
            totals: Totals::new(since),
        };
        // The user waits for the application, so there are no pauses.
        let done = run_throttled(&mut job, &mut CallThrottle::new(Permille(1000)), cancel);
        let mut cost = meter.stop(job.totals, done);
        cost.working_set = app.working_set();
        cost
    }

    /// The steps of a reclaim, the first one last.
    fn steps(&self, processes: &Processes, profile: Profile, totals: &mut Totals) -> Vec<ProcessStep> {
        let mut steps = Vec::new();
        for (action, kind) in profile.steps() {
            for process in processes.values() {
                let pieces = maps::read(&self.root, process.pid).and_then(|mappings| {
                    let ranges = LayoutRule::Mappings.ranges(&mappings);
                    ResidentChunks::open(&self.root, process.pid, ranges, Some(*kind))
                });
                match pieces {
                    Ok(pieces) => steps.push(ProcessStep {
                        id: process.id,
                        action: *action,
                        kind: *kind,
                        pieces,
                        resident: Vec::new(),
                    }),
                    Err(ProcError::Gone { .. }) => {}
                    Err(error) => totals.refuse(&format!(
                        "cannot read the memory map of process {}: {error}",
                        process.pid
                    )),
                }
            }
        }
        steps.reverse();
        steps
    }

    fn anon_rss(&self, processes: &Processes) -> Bytes {
        let statuses = processes
            .values()
            .filter_map(|process| status::read(&self.root, process.pid).ok());
        statuses.map(|status| status.rss_anon).sum()
    }
}

impl ReclaimJob<'_> {
    fn advise(&mut self, step: &ProcessStep, piece: &ResidentChunk) -> Nanos {
        let hinter = if step.kind == PageKind::Anon {
            &mut self.anon
        } else {
            &mut self.file
        };
        let hint = Hint {
            target: step.id,
            range: piece.range,
            action: step.action,
        };
        let start = clock::monotonic();
        let results = hinter.give(self.processes, &[hint]);
        let time = clock::monotonic().saturating_sub(start);
        self.totals.add(&results, time);
        time
    }
}

impl ThrottledJob for ReclaimJob<'_> {
    fn call(&mut self, max: Bytes) -> Option<(Bytes, Nanos)> {
        while let Some(mut step) = self.steps.pop() {
            // The kernel would refuse every further call too.
            let next = if self.totals.refused.is_some() {
                None
            } else {
                step.pieces.next(max)
            };
            let Some(piece) = next else {
                self.finished.push(step);
                continue;
            };
            let time = if piece.resident > Bytes::ZERO {
                self.advise(&step, &piece)
            } else {
                Nanos::ZERO
            };
            let resident = piece.resident;
            step.resident.extend(piece.pages);
            self.steps.push(step);
            return Some((resident, time));
        }
        None
    }

    fn pause(&mut self, time: Nanos, cancel: &AtomicBool) {
        pause(time, cancel);
    }
}

struct PrefetchJob<'a> {
    processes: &'a Processes,
    hinter: Hinter,
    /// Remaining hints, the next one last.
    hints: Vec<Hint>,
    totals: Totals,
}

impl ThrottledJob for PrefetchJob<'_> {
    fn call(&mut self, max: Bytes) -> Option<(Bytes, Nanos)> {
        let mut call = Vec::new();
        let mut bytes = Bytes::ZERO;
        while call.len() < RANGES_PER_CALL && bytes < max {
            let Some(mut hint) = self.hints.pop() else { break };
            let room = max.saturating_sub(bytes);
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
        let start = clock::monotonic();
        let results = self.hinter.give(self.processes, &call);
        let time = clock::monotonic().saturating_sub(start);
        self.totals.add(&results, time);
        Some((bytes, time))
    }

    fn pause(&mut self, time: Nanos, cancel: &AtomicBool) {
        pause(time, cancel);
    }
}

impl Totals {
    const fn new(since: Nanos) -> Self {
        Self {
            cost: JobCost::zero(Outcome::Done),
            since,
            refused: None,
        }
    }

    fn add(&mut self, results: &[HintResult], time: Nanos) {
        let cost = &mut self.cost;
        cost.calls += 1;
        cost.longest_call = cost.longest_call.max(time);
        for result in results {
            cost.advised += result.advised;
            cost.freed += result.changed.unwrap_or_default();
            let is_refusal = |(reason, _): &(SkipReason, Bytes)| {
                matches!(
                    reason,
                    SkipReason::Skip(Skip::Refused | Skip::NotPermitted | Skip::Unsupported)
                )
            };
            if let Some(error) = result
                .error
                .as_ref()
                .filter(|_| result.skipped.iter().any(is_refusal))
            {
                self.refused.get_or_insert_with(|| error.clone());
            }
        }
        if cost.freed > Bytes::ZERO && cost.reaction.is_none() {
            cost.reaction = Some(clock::monotonic().saturating_sub(self.since));
        }
    }

    fn refuse(&mut self, reason: &str) {
        self.refused.get_or_insert_with(|| reason.to_owned());
    }
}

/// Time, CPU time and zram memory at the start of a job.
struct JobMeter<'a> {
    root: &'a Path,
    start: Nanos,
    cpu: Nanos,
    zram: Option<Bytes>,
}

impl<'a> JobMeter<'a> {
    fn start(root: &'a Path) -> Self {
        Self {
            root,
            start: clock::monotonic(),
            cpu: clock::thread_cpu(),
            zram: zram_memory(root),
        }
    }

    fn stop(self, totals: Totals, done: bool) -> JobCost {
        let mut cost = totals.cost;
        cost.outcome = match totals.refused {
            Some(reason) => Outcome::Failed(reason),
            None if done => Outcome::Done,
            None => Outcome::Cancelled,
        };
        cost.elapsed = clock::monotonic().saturating_sub(self.start);
        cost.cpu = clock::thread_cpu().saturating_sub(self.cpu);
        let after = zram_memory(self.root);
        cost.compressed_growth = self
            .zram
            .zip(after)
            .map(|(before, after)| after.saturating_sub(before));
        cost
    }
}

/// Memory used by all zram devices; `None` without zram.
fn zram_memory(root: &Path) -> Option<Bytes> {
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
        let remaining = Duration::from_nanos(end.saturating_sub(clock::monotonic()).0);
        if remaining.is_zero() || cancel.load(Ordering::Acquire) {
            return;
        }
        thread::sleep(remaining.min(CANCEL_POLL));
    }
}
