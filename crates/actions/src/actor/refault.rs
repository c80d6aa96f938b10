//! Does what we page out stay out? Memory that comes back was not cold, and paging it out costs more than it saves.

use std::collections::VecDeque;

use thermo_engine::TargetId;
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

/// More runs than this are not followed; the oldest is given up.
const MAX_RUNS: usize = 256;
/// Of less memory than this no share is told: a single page would decide.
const ENOUGH: Bytes = Bytes::mib(1);
/// How long an answer is good for.
const LOOK_EVERY: Nanos = Nanos::secs(1);

/// What was paged out in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PagedOut {
    pub when: Nanos,
    pub target: TargetId,
    pub range: AddrRange,
    /// How much left.
    pub out: Bytes,
    /// How much of the range was still there right after.
    pub still_there: Bytes,
}

/// The feedback: what left within the window, and how much of it is back.
#[derive(Debug)]
pub(super) struct Refaults {
    pub limit: Permille,
    pub window: Nanos,
    runs: VecDeque<PagedOut>,
    looked: Option<(Nanos, Permille)>,
}

impl Refaults {
    pub(super) fn new(limit: Permille, window: Nanos) -> Self {
        Self {
            limit,
            window,
            runs: VecDeque::new(),
            looked: None,
        }
    }

    pub(super) fn record(&mut self, run: PagedOut) {
        if run.out == Bytes::ZERO {
            return;
        }
        if self.runs.len() >= MAX_RUNS {
            self.runs.pop_front();
        }
        self.runs.push_back(run);
    }

    /// The share of what left within the window that is back. `there_now` tells how much of a run's range is in
    /// memory now; `None` when its process is gone.
    pub(super) fn share(&mut self, now: Nanos, there_now: impl Fn(&PagedOut) -> Option<Bytes>) -> Permille {
        if let Some((when, share)) = self.looked
            && now.saturating_sub(when) < LOOK_EVERY
        {
            return share;
        }
        let (mut out, mut back) = (Bytes::ZERO, Bytes::ZERO);
        self.runs.retain(|run| {
            if now.saturating_sub(run.when) > self.window {
                return false;
            }
            let Some(there) = there_now(run) else { return false };
            out += run.out;
            back += there.saturating_sub(run.still_there).min(run.out);
            true
        });
        let share = match out {
            out if out < ENOUGH => Permille(0),
            out => Permille(u32::try_from(u128::from(back.0) * 1000 / u128::from(out.0)).unwrap_or(1000)),
        };
        self.looked = Some((now, share));
        share
    }

    /// Whether such a share is too much.
    pub(super) fn exceeds(&self, share: Permille) -> bool {
        share.0 > self.limit.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(when: u64, out: Bytes) -> PagedOut {
        let range = AddrRange::new(0, 64 << 20);
        PagedOut {
            when: Nanos::secs(when),
            target: TargetId(0),
            range,
            out,
            still_there: Bytes::mib(2),
        }
    }

    fn refaults() -> Refaults {
        Refaults::new(Permille(250), Nanos::secs(60))
    }

    #[test]
    fn what_came_back_is_too_much_above_the_limit_and_not_below() {
        for (there, share, too_much) in [
            (2, 0, false),
            (12, 250, false),
            (13, 275, true),
            (90, 1000, true),
            (1, 0, false),
        ] {
            let mut refaults = refaults();
            refaults.record(run(1, Bytes::mib(40)));
            let found = refaults.share(Nanos::secs(2), |_| Some(Bytes::mib(there)));
            assert_eq!(
                (found, refaults.exceeds(found)),
                (Permille(share), too_much),
                "{there} MiB there"
            );
        }
    }

    #[test]
    fn little_memory_and_memory_of_long_ago_decide_nothing() {
        let mut few = refaults();
        few.record(run(1, Bytes::kib(8)));
        assert_eq!(few.share(Nanos::secs(2), |_| Some(Bytes::mib(64))), Permille(0));
        let mut old = refaults();
        old.record(run(1, Bytes::mib(40)));
        assert_eq!(
            old.share(Nanos::secs(61), |_| Some(Bytes::mib(64))),
            Permille(1000)
        );
        assert_eq!(old.share(Nanos::secs(63), |_| Some(Bytes::mib(64))), Permille(0));
    }

    #[test]
    fn a_process_that_is_gone_has_nothing_back() {
        let mut refaults = refaults();
        refaults.record(run(1, Bytes::mib(40)));
        assert_eq!(refaults.share(Nanos::secs(2), |_| None), Permille(0));
    }

    #[test]
    fn the_machine_is_asked_once_a_second_at_most() {
        let mut refaults = refaults();
        refaults.record(run(1, Bytes::mib(40)));
        let share = refaults.share(Nanos::secs(2), |_| Some(Bytes::mib(64)));
        assert_eq!(
            refaults.share(Nanos::millis(2500), |_| unreachable!("asked again")),
            share
        );
    }
}
