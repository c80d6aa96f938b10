//! Decides when to kill an application under memory pressure, like Android's lmkd: one at a time, and not
//! again until the memory of the killed one can have been freed. Only the experiment kills applications.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use thermo_units::{Nanos, Permille};

/// Time window in which stalls are summed.
const WINDOW: Duration = Duration::from_secs(1);
/// Minimum time between two kills.
const MIN_KILL_INTERVAL: Duration = Duration::from_millis(500);

/// Thresholds and recent stalls.
#[derive(Debug)]
pub(super) struct LowMemoryKiller {
    max_stall: Nanos,
    min_swap_free: Permille,
    /// Times of the readings in the window, with the total stall time at each.
    readings: VecDeque<(Instant, Nanos)>,
    killed_at: Option<Instant>,
}

impl LowMemoryKiller {
    /// A killer for stalls of `max_stall` in one second, and for less free swap than `min_swap_free`.
    pub(super) fn new(max_stall: Nanos, min_swap_free: Permille) -> Self {
        Self {
            max_stall,
            min_swap_free,
            readings: VecDeque::new(),
            killed_at: None,
        }
    }

    /// Returns true when an application should be killed now. `stalled` is the total memory stall time so
    /// far. Free and total swap are in bytes.
    pub(super) fn should_kill(&mut self, now: Instant, stalled: Nanos, (free, total): (u64, u64)) -> bool {
        self.readings.push_back((now, stalled));
        while self
            .readings
            .front()
            .is_some_and(|(then, _)| now.duration_since(*then) > WINDOW)
        {
            self.readings.pop_front();
        }
        if self
            .killed_at
            .is_some_and(|then| now.duration_since(then) < MIN_KILL_INTERVAL)
        {
            return false;
        }
        let before = self.readings.front().map_or(stalled, |(_, before)| *before);
        let is_stalled = stalled.saturating_sub(before) >= self.max_stall;
        let is_swap_full =
            total > 0 && u128::from(free) * 1000 < u128::from(total) * u128::from(self.min_swap_free.0);
        is_stalled || is_swap_full
    }

    /// Records a kill. Earlier stalls do not count any more.
    pub(super) fn record_kill(&mut self, now: Instant) {
        self.killed_at = Some(now);
        self.readings.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killer_reacts_to_stalls_and_full_swap() {
        let mut killer = LowMemoryKiller::new(Nanos::millis(70), Permille(100));
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let plenty = (100, 100);
        assert!(!killer.should_kill(at(0), Nanos::millis(500), plenty));
        assert!(!killer.should_kill(at(900), Nanos::millis(569), plenty));
        assert!(
            !killer.should_kill(at(1800), Nanos::millis(638), plenty),
            "69 ms in the last second"
        );
        assert!(
            killer.should_kill(at(1850), Nanos::millis(640), plenty),
            "71 ms since the reading at 900 ms"
        );
        killer.record_kill(at(1850));
        assert!(!killer.should_kill(at(2300), Nanos::millis(900), plenty));
        assert!(killer.should_kill(at(2350), Nanos::millis(970), plenty));
        killer.record_kill(at(2350));
        assert!(!killer.should_kill(at(2900), Nanos::millis(970), (10, 100)));
        assert!(killer.should_kill(at(2901), Nanos::millis(970), (9, 100)));
        assert!(
            !killer.should_kill(at(2902), Nanos::millis(970), (0, 0)),
            "no swap is not full swap"
        );
    }
}
