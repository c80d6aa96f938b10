//! Watermark checks: they activate and deactivate schemes, and pause monitoring while all schemes are
//! inactive.

use super::SystemMetric;
use super::state::{SchemeState, WarningTopic};
use super::watermarks::{WatermarkMetric, Watermarks};
use crate::ops::{Operations, OpsError};
use crate::sink::{Event, Sink};
use thermo_units::Nanos;

/// Minimum time between two checks. A check reads `/proc/meminfo`, and the caller may call every sampling
/// interval.
const MIN_INTERVAL: Nanos = Nanos::millis(100);

/// Checks the watermarks of all schemes that are due: ten times a second for active schemes, once in the
/// watermark interval for inactive ones.
///
/// Returns the time of the next check if all schemes are inactive; monitoring can pause until then. Returns
/// `None` if any scheme is active or there are no schemes. Schemes that have used up their snapshots are
/// ignored.
pub fn check_watermarks(
    states: &mut [SchemeState],
    now: Nanos,
    ops: &mut dyn Operations,
    sink: &mut dyn Sink,
) -> Option<Nanos> {
    let mut value = None;
    for (index, state) in states.iter_mut().enumerate() {
        if state.scheme.watermarks.metric == WatermarkMetric::FreeMemRate && now >= state.next_check {
            let free = value.get_or_insert_with(|| ops.metric(&SystemMetric::FreeMemRate));
            state.check_watermarks(index, free, now, sink);
        }
    }
    let mut unfinished = states.iter().filter(|state| !state.is_finished()).peekable();
    unfinished.peek()?;
    if unfinished.clone().any(SchemeState::is_active) {
        return None;
    }
    unfinished.map(|state| state.next_check).min()
}

impl SchemeState {
    fn check_watermarks(
        &mut self,
        index: usize,
        free: &Result<u64, OpsError>,
        now: Nanos,
        sink: &mut dyn Sink,
    ) {
        let before = self.activated;
        match free {
            Ok(free) => self.activated = self.scheme.watermarks.allow(*free, before),
            Err(error) => {
                // A failed read may be temporary: the state stays. If the metric is unsupported, the scheme
                // is deactivated: acting without the requested watermarks would be wrong.
                self.activated &= !matches!(error, OpsError::Unsupported { .. });
                let text = format!("the watermark metric cannot be read: {error}");
                self.warn_once(WarningTopic::Watermarks, index, &text, now, sink);
            }
        }
        let wait = if self.activated {
            MIN_INTERVAL
        } else {
            self.scheme.watermarks.interval.max(MIN_INTERVAL)
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
    /// True if a scheme that was `active` is active at this `value` of the metric.
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
    fn watermarks_keep_state_between_mid_and_high() {
        let watermarks = Watermarks {
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
            assert_eq!(watermarks.allow(value, true), from_active, "active at {value}");
            assert_eq!(
                watermarks.allow(value, false),
                from_inactive,
                "inactive at {value}"
            );
        }
    }
}
