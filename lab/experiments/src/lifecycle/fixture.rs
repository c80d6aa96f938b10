//! Ranked kills under pressure, after lmkd's rules of thumb: one at a time, the one used longest ago, and not again
//! before what it held could be taken back. A fixture of the experiment.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use thermo_units::{Nanos, Permille};

/// Stalls count within this.
const WINDOW: Duration = Duration::from_secs(1);
/// After a kill, for so long none.
const REST: Duration = Duration::from_millis(500);

/// When to kill.
#[derive(Debug)]
pub(super) struct Fixture {
    stall: Nanos,
    swap_free: Permille,
    /// When, and how long tasks had stalled by then.
    seen: VecDeque<(Instant, Nanos)>,
    killed_at: Option<Instant>,
}

impl Fixture {
    pub(super) fn new(stall: Nanos, swap_free: Permille) -> Self {
        Self {
            stall,
            swap_free,
            seen: VecDeque::new(),
            killed_at: None,
        }
    }

    /// Takes in how long tasks have stalled for memory up to now, and free and all swap in bytes. True: kill one.
    pub(super) fn see(&mut self, now: Instant, stalled: Nanos, (free, all): (u64, u64)) -> bool {
        self.seen.push_back((now, stalled));
        while self
            .seen
            .front()
            .is_some_and(|(then, _)| now.duration_since(*then) > WINDOW)
        {
            self.seen.pop_front();
        }
        if self.killed_at.is_some_and(|then| now.duration_since(then) < REST) {
            return false;
        }
        let before = self.seen.front().map_or(stalled, |(_, before)| *before);
        let stalls = stalled.saturating_sub(before) >= self.stall;
        let full = all > 0 && u128::from(free) * 1000 < u128::from(all) * u128::from(self.swap_free.0);
        stalls || full
    }

    /// One was killed: stalls before that are answered.
    pub(super) fn killed(&mut self, now: Instant) {
        self.killed_at = Some(now);
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_within_a_second_and_little_swap_kill_and_then_there_is_a_rest() {
        let mut fixture = Fixture::new(Nanos::millis(70), Permille(100));
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let plenty = (100, 100);
        assert!(!fixture.see(at(0), Nanos::millis(500), plenty));
        assert!(!fixture.see(at(900), Nanos::millis(569), plenty));
        assert!(
            !fixture.see(at(1800), Nanos::millis(638), plenty),
            "69 ms in the last second"
        );
        assert!(
            fixture.see(at(1850), Nanos::millis(640), plenty),
            "71 since the look at 900 ms"
        );
        fixture.killed(at(1850));
        assert!(!fixture.see(at(2300), Nanos::millis(900), plenty));
        assert!(fixture.see(at(2350), Nanos::millis(970), plenty));
        fixture.killed(at(2350));
        assert!(!fixture.see(at(2900), Nanos::millis(970), (10, 100)));
        assert!(fixture.see(at(2901), Nanos::millis(970), (9, 100)));
        assert!(
            !fixture.see(at(2902), Nanos::millis(970), (0, 0)),
            "no swap is not full swap"
        );
    }
}
