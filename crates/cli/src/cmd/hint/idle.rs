//! A look before a hint: which memory is not accessed for a while.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, bail};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::{Attrs, Context, Event, Sink, TargetId};
use thermo_kernel::clock;
use thermo_runtime::Vaddr;
use thermo_runtime::kdamond::{Kdamond, Parts, Why};
use thermo_targets::TrackedProcesses;
use thermo_term::interrupt;
use thermo_units::{AddrRange, Nanos};

use super::POLL;
use crate::session::Host;

/// What finding out may cost: it takes a moment, and somebody waits for it.
const SHARE: CpuShare = CpuShare(100_000);

/// Idle memory by target: ascending ranges.
pub type Found = BTreeMap<TargetId, Vec<AddrRange>>;

/// What of `ranges` (ascending) was found idle in `target`.
pub fn within(found: &Found, target: TargetId, ranges: &[AddrRange]) -> Vec<AddrRange> {
    let idle = found.get(&target).map_or(&[][..], Vec::as_slice);
    let parts = ranges
        .iter()
        .flat_map(|range| idle.iter().filter_map(|idle| range.intersection(idle)));
    parts.collect()
}

/// Notes since when accesses of each target are known: its first pass clears the accessed bits of the past.
#[derive(Debug, Default)]
struct Known(BTreeMap<TargetId, Nanos>);

impl Sink for Known {
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

impl Known {
    /// Whether accesses of all targets are known for `time`, and the pass that tells the last of it is through.
    fn lasts(&self, time: Nanos, context: &Context) -> bool {
        let now = clock::monotonic();
        context.targets().all(|target| {
            let tables = target.tables.filter(|tables| tables.nr_passes > 1);
            let since = self.0.get(&target.id).zip(tables);
            since.is_some_and(|(since, tables)| now >= since.saturating_add(time).saturating_add(tables.pass))
        })
    }
}

/// Monitors `members` for `time` and gives them back with what was not accessed meanwhile.
pub fn look(members: TrackedProcesses, host: Host, time: Nanos) -> anyhow::Result<(TrackedProcesses, Found)> {
    let attrs = attrs(time);
    attrs.check()?;
    let tracker = host.own_tracker(1)?;
    let policy = match tracker.can_scan() {
        true => MethodPolicy::Scan,
        false => MethodPolicy::ByHand,
    };
    let context = Context::new(attrs, 1)?
        .with_budget(SHARE, policy)
        .with_snapshot_interval(attrs.aggr);
    // It only monitors: nothing is acted on.
    let ops = Vaddr::new(
        Path::new("/"),
        members,
        tracker,
        Actor::new(PageoutLimits::default(), true),
    );
    let sink = Known::default();
    let kdamond =
        Kdamond::start(0, Parts { context, ops, sink }).context("cannot start the kdamond thread")?;
    let is_enough = move |parts: &mut Parts<_, Known>| parts.sink.lasts(time, &parts.context);
    while kdamond.call(is_enough) == Some(false) && !interrupt::asked() {
        thread::sleep(POLL);
    }
    let ended = kdamond.stop();
    match ended.why {
        Why::Failed(error) => return Err(error.into()),
        Why::TargetsGone => bail!("every target ended while it was monitored"),
        Why::Stopped => {}
    }
    let found = ended.parts.context.idle_for(time, clock::monotonic());
    Ok((ended.parts.ops.into_members(), found.into_iter().collect()))
}

/// Twenty aggregations of twenty access checks within the time, none of them faster than DAMON's.
fn attrs(time: Nanos) -> Attrs {
    let aggr = Nanos((time.0 / 20).max(Nanos::millis(100).0));
    Attrs {
        sample: Nanos(aggr.0 / 20),
        aggr,
        ..Attrs::default()
    }
}
