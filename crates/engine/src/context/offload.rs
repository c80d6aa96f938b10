//! Monitoring that runs elsewhere, in the kernel: told what to do, and asked once an aggregation what it found.
//!
//! Regions, counts and ages are the other's; nothing is merged, split or aged here, and no scheme is applied. The pace
//! is the other's, too: [`Offload::follow`](crate::ops::Offload::follow) waits for the end of its aggregation. Where
//! asking costs more than it tells, it says so by a later next time; the snapshot then stands for the time since the
//! last one.

use super::state::{Context, Next};
use crate::ops::{Operations, OpsError};
use crate::scheme::{Scheme, SchemeStats};
use crate::sink::{Event, Sink};
use thermo_units::Nanos;

impl Context {
    /// One look at what the operations, which monitor by themselves, have found.
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
        offload.commit(&self.attrs, &schemes)?;
        let mut snapshot = offload.follow()?;
        for target in &mut self.targets {
            // One that was not told of has just come, or is about to go.
            let found = snapshot.targets.iter_mut().find(|(id, _)| *id == target.id);
            target.regions = found.map_or_else(Vec::new, |(_, regions)| std::mem::take(regions));
        }
        self.emit_snapshot(snapshot.taken, sink);
        self.aggr_start = Some(snapshot.taken);
        for (nth, stats) in snapshot.schemes.into_iter().enumerate() {
            self.tell_applied(nth, stats, snapshot.taken, sink);
        }
        Ok(Next::At(snapshot.next))
    }

    fn tell_applied(&mut self, nth: usize, stats: SchemeStats, now: Nanos, sink: &mut dyn Sink) {
        let Some(state) = self.schemes.get_mut(nth) else {
            return;
        };
        if state.take_over(stats) {
            sink.on(&Event::SchemeApplied {
                now,
                scheme: nth,
                tried: &[],
                skipped: &[],
                stats: state.stats(),
            });
        }
    }
}
