//! Finds memory that is idle for a given time, by monitoring for that time before a hint.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, bail};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::{Attrs, Context, Event, Sink, TargetId};
use thermo_kernel::clock;
use thermo_runtime::Vaddr;
use thermo_runtime::host::Host;
use thermo_runtime::kdamond::{ExitReason, Kdamond, Parts};
use thermo_targets::TrackedProcesses;
use thermo_term::interrupt;
use thermo_units::{AddrRange, Bytes, Nanos};

use super::POLL;

/// CPU budget: 10 % of a CPU, because monitoring is short and the user waits for it.
const SHARE: CpuShare = CpuShare(100_000);

/// Idle memory by target: ascending ranges.
pub type IdleRanges = BTreeMap<TargetId, Vec<AddrRange>>;

/// What was found of the monitored processes.
#[derive(Debug)]
pub struct IdleMemory {
    /// The processes.
    pub processes: TrackedProcesses,
    /// Memory that was not accessed.
    pub ranges: IdleRanges,
    /// Resident memory whose accesses cannot be known, e.g. shared pages. Zero with sampling, which counts it
    /// as accessed.
    pub unknown: Bytes,
}

/// The idle parts of `ranges` (ascending) in `target`.
pub fn idle_parts(idle: &IdleRanges, target: TargetId, ranges: &[AddrRange]) -> Vec<AddrRange> {
    let idle = idle.get(&target).map_or(&[][..], Vec::as_slice);
    let parts = ranges
        .iter()
        .flat_map(|range| idle.iter().filter_map(|idle| range.intersection(idle)));
    parts.collect()
}

/// The time of each target's first complete pass. Accesses are known from then on: that pass clears accessed
/// bits of the past.
#[derive(Debug, Default)]
struct FirstPasses(BTreeMap<TargetId, Nanos>);

impl Sink for FirstPasses {
    fn on(&mut self, event: &Event<'_>) {
        let Event::Aggregated { end, targets, .. } = event else {
            return;
        };
        self.0
            .retain(|id, _| targets.iter().any(|target| target.id == *id));
        for target in *targets {
            if target.tables.is_some_and(|tables| tables.nr_passes > 0) {
                self.0.entry(target.id).or_insert(*end);
            }
        }
    }
}

impl FirstPasses {
    /// Whether the accesses of all targets are known for `time`, the last complete pass included.
    fn cover(&self, time: Nanos, context: &Context) -> bool {
        let now = clock::monotonic();
        context.targets().all(|target| {
            let tables = target.tables.filter(|tables| tables.nr_passes > 1);
            let since = self.0.get(&target.id).zip(tables);
            since.is_some_and(|(since, tables)| now >= since.saturating_add(time).saturating_add(tables.pass))
        })
    }
}

/// Monitors `processes` for `time`. Returns the memory that was not accessed in this time.
///
/// # Errors
/// No tracker is available, monitoring failed, or every process has ended.
pub fn find_idle(processes: TrackedProcesses, host: Host, time: Nanos) -> anyhow::Result<IdleMemory> {
    let attrs = attrs(time);
    attrs.check()?;
    let tracker = host.open_own_tracker(1)?.tracker;
    let policy = match tracker.can_scan() {
        true => MethodPolicy::Scan,
        false => MethodPolicy::FixedIntervals,
    };
    let context = Context::new(attrs, 1)?
        .with_budget(SHARE, policy)
        .with_snapshot_interval(attrs.aggr);
    // Without schemes the actor has nothing to do.
    let ops = Vaddr::new(
        Path::new("/"),
        processes,
        tracker,
        Actor::new(PageoutLimits::default(), true),
    );
    let sink = FirstPasses::default();
    let kdamond =
        Kdamond::start(0, Parts { context, ops, sink }).context("cannot start the kdamond thread")?;
    let is_enough = move |parts: &mut Parts<_, FirstPasses>| parts.sink.cover(time, &parts.context);
    while kdamond.call(is_enough) == Some(false) && !interrupt::requested() {
        thread::sleep(POLL);
    }
    let ended = kdamond.stop();
    match ended.reason {
        ExitReason::Failed(error) => return Err(error.into()),
        ExitReason::TargetsGone => bail!("every target ended while it was monitored"),
        ExitReason::Stopped => {}
    }
    let context = ended.parts.context;
    let unknown = context
        .targets()
        .filter_map(|target| Some(target.tables?.unknown()))
        .sum();
    Ok(IdleMemory {
        ranges: context.idle_for(time, clock::monotonic()).into_iter().collect(),
        processes: ended.parts.ops.into_targets(),
        unknown,
    })
}

/// Intervals: twenty aggregations of twenty access checks within the time, but not shorter than DAMON's
/// defaults.
fn attrs(time: Nanos) -> Attrs {
    let aggr = Nanos((time.0 / 20).max(Nanos::millis(100).0));
    Attrs {
        sample: Nanos(aggr.0 / 20),
        aggr,
        ..Attrs::default()
    }
}
