//! A look before a hint: which memory is not touched for a while.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, bail};
use thermo_core::{AddrRange, Attrs, Context, Event, Nanos, Region, Sink, TargetId};
use thermo_ops::kdamond::{Kdamond, Parts, Why};
use thermo_ops::targets::Members;
use thermo_ops::{Actor, PageoutLimits, Vaddr};

use super::POLL;
use crate::interrupt;
use crate::session::Host;

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

/// Counts aggregations.
struct Aggregations(u32);

impl Sink for Aggregations {
    fn on(&mut self, event: &Event<'_>) {
        self.0 += u32::from(matches!(event, Event::Aggregated { .. }));
    }
}

/// Watches `members` for `time` and gives them back with what was never seen touched meanwhile.
pub fn look(members: Members, host: Host, time: Nanos) -> anyhow::Result<(Members, Found)> {
    let attrs = attrs(time);
    attrs.check()?;
    let least = u32::try_from(time.0.div_ceil(attrs.aggr.0)).unwrap_or(u32::MAX);
    let tracker = host.own_tracker(1)?;
    let context = Context::new(attrs, 1)?;
    // It only looks: nothing is acted on.
    let ops = Vaddr::new(
        Path::new("/"),
        members,
        tracker,
        Actor::new(PageoutLimits::default(), true),
    );
    let sink = Aggregations(0);
    let kdamond =
        Kdamond::start(0, Parts { context, ops, sink }).context("cannot start the kdamond thread")?;
    // One more than the time takes: the first count finds every region changed.
    let enough = move |parts: &mut Parts<_, Aggregations>| parts.sink.0 > least;
    while kdamond.call(enough) == Some(false) && !interrupt::asked() {
        thread::sleep(POLL);
    }
    let ended = kdamond.stop();
    match ended.why {
        Why::Failed(error) => return Err(error.into()),
        Why::TargetsGone => bail!("every target ended while it was watched"),
        Why::Stopped => {}
    }
    let found = found(&ended.parts.context, least);
    Ok((ended.parts.ops.into_members(), found))
}

/// Twenty aggregations of twenty looks within the time, none of them faster than DAMON's.
fn attrs(time: Nanos) -> Attrs {
    let aggr = Nanos((time.0 / 20).max(Nanos::millis(100).0));
    Attrs {
        sample: Nanos(aggr.0 / 20),
        aggr,
        ..Attrs::default()
    }
}

/// What was found untouched in this aggregation and, by its age, in enough of those before.
fn found(context: &Context, least: u32) -> Found {
    let is_idle = |region: &&Region| {
        region.last_nr_accesses == 0
            && region.nr_accesses == 0
            && !region.unknown
            && region.age.saturating_add(1) >= least
    };
    context
        .targets()
        .map(|target| {
            let idle = target.regions.iter().filter(is_idle);
            (target.id, idle.map(|region| region.range).collect())
        })
        .collect()
}
