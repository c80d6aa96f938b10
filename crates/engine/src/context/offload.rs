//! Monitoring by in-kernel DAMON: the context sets the parameters and reads the results once an aggregation.
//!
//! The kernel counts, merges, splits and ages the regions and applies the schemes.
//! [`Offload::follow`](crate::ops::Offload::follow) waits for the end of the kernel's aggregation. If reading
//! the results costs too much, `follow` returns a later time for the next read. The snapshot then covers the
//! time since the previous one.

use super::state::{Context, Next};
use crate::ops::{Operations, OpsError};
use crate::scheme::{Scheme, SchemeStats};
use crate::sink::{Event, Sink};
use thermo_units::Nanos;

impl Context {
    /// Reads one snapshot from operations that monitor themselves and emits it.
    pub(super) fn follow(
        &mut self,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Result<Next, OpsError> {
        let schemes: Vec<Scheme> = self.schemes.iter().map(|state| state.scheme().clone()).collect();
        let Some(offload) = ops.as_offload() else {
            return Ok(Next::At(now));
        };
        offload.commit_parameters(&self.attrs, &schemes)?;
        let mut snapshot = offload.follow()?;
        for target in &mut self.targets {
            // A target without results has just appeared or is about to disappear.
            let found = snapshot.targets.iter_mut().find(|(id, _)| *id == target.id);
            target.regions = found.map_or_else(Vec::new, |(_, regions)| std::mem::take(regions));
        }
        self.emit_snapshot(snapshot.taken, sink);
        self.aggr_start = Some(snapshot.taken);
        for (nth, stats) in snapshot.schemes.into_iter().enumerate() {
            self.emit_scheme_applied(nth, stats, snapshot.taken, sink);
        }
        Ok(Next::At(snapshot.next))
    }

    fn emit_scheme_applied(&mut self, nth: usize, stats: SchemeStats, now: Nanos, sink: &mut dyn Sink) {
        let Some(state) = self.schemes.get_mut(nth) else {
            return;
        };
        if state.import_stats(stats) {
            sink.on(&Event::SchemeApplied {
                now,
                scheme: nth,
                tried: &[],
                skipped: &[],
                by_target: &[],
                stats: state.stats(),
            });
        }
    }
}
