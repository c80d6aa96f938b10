//! Watermarks at work: which schemes may act now, and how long monitoring can rest when none may.

use super::SystemMetric;
use super::state::{SchemeState, Topic};
use super::watermarks::{WatermarkMetric, Watermarks};
use crate::ops::{Operations, OpsError};
use crate::sink::{Event, Sink};
use thermo_units::Nanos;

/// Watermarks are not looked at more often than this: asking costs a read of `/proc/meminfo`, and the caller
/// comes by every sampling interval.
const LEAST_INTERVAL: Nanos = Nanos::millis(100);

/// Looks at the watermarks of all schemes, each when it is time to: ten times a second while it is active,
/// once in its own interval while it is not.
///
/// Returns when to come again if all schemes are inactive, so that monitoring would be for nothing until then;
/// `None` if any is active or there are none. Schemes that ran out of snapshots have no say.
pub fn check_watermarks(
    states: &mut [SchemeState],
    now: Nanos,
    ops: &mut dyn Operations,
    sink: &mut dyn Sink,
) -> Option<Nanos> {
    let mut asked = None;
    for (index, state) in states.iter_mut().enumerate() {
        if state.scheme.watermarks.metric == WatermarkMetric::FreeMemRate && now >= state.next_check {
            let free = asked.get_or_insert_with(|| ops.metric(&SystemMetric::FreeMemRate));
            state.check(index, free, now, sink);
        }
    }
    let mut in_question = states.iter().filter(|state| !state.is_finished()).peekable();
    in_question.peek()?;
    if in_question.clone().any(SchemeState::is_active) {
        return None;
    }
    in_question.map(|state| state.next_check).min()
}

impl SchemeState {
    fn check(&mut self, index: usize, free: &Result<u64, OpsError>, now: Nanos, sink: &mut dyn Sink) {
        let before = self.activated;
        match free {
            Ok(free) => self.activated = self.scheme.watermarks.allow(*free, before),
            Err(error) => {
                // Once it could be read: a failure that passes. Never: better to do nothing than without the
                // limits that were asked for.
                self.activated &= !matches!(error, OpsError::Unsupported { .. });
                let text = format!("its watermarks cannot be looked at: {error}");
                self.warn(Topic::Watermarks, index, &text, now, sink);
            }
        }
        let wait = if self.activated {
            LEAST_INTERVAL
        } else {
            self.scheme.watermarks.interval.max(LEAST_INTERVAL)
        };
        self.next_check = now.saturating_add(wait);
        if self.activated != before {
            let metric = free.as_ref().copied().unwrap_or_default();
            sink.on(&Event::SchemeActive {
                now,
                scheme: index,
                active: self.activated,
                metric,
            });
        }
    }
}

impl Watermarks {
    /// Whether a scheme that was `active` may act at this `value` of the metric.
    fn allow(&self, value: u64, active: bool) -> bool {
        let (high, mid, low) = (
            u64::from(self.high.0),
            u64::from(self.mid.0),
            u64::from(self.low.0),
        );
        (low..=high).contains(&value) && (active || value < mid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::Permille;

    #[test]
    fn between_mid_and_high_it_stays_as_it_is() {
        let marks = Watermarks {
            metric: WatermarkMetric::FreeMemRate,
            interval: Nanos::secs(5),
            high: Permille(500),
            mid: Permille(400),
            low: Permille(200),
        };
        for (value, from_active, from_inactive) in [
            (501, false, false),
            (500, true, false),
            (400, true, false),
            (399, true, true),
            (200, true, true),
            (199, false, false),
            (0, false, false),
        ] {
            assert_eq!(marks.allow(value, true), from_active, "active at {value}");
            assert_eq!(marks.allow(value, false), from_inactive, "inactive at {value}");
        }
    }
}
