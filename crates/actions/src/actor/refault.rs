//! Feedback from refaults: the share of paged-out memory that is back in memory. Memory that comes back was
//! not cold, and paging it out costs more than it saves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use thermo_engine::TargetId;
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

/// Maximum number of ranges that are tracked; the oldest is dropped.
const MAX_RANGES: usize = 256;
/// Below this much paged-out memory the share counts as 0: single pages would decide.
const MIN_BYTES: Bytes = Bytes::mib(1);
/// Time between two checks.
const CHECK_EVERY: Nanos = Nanos::secs(1);

/// A range that was paged out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PagedOut {
    pub when: Nanos,
    pub target: TargetId,
    pub range: AddrRange,
    /// Bytes paged out.
    pub out: Bytes,
    /// Bytes of the range that were still present right afterwards.
    pub still_present: Bytes,
}

/// A check of refaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefaultCheck {
    /// Time of the check (`CLOCK_MONOTONIC`).
    pub when: Nanos,
    /// Memory paged out within the window.
    pub paged_out: Bytes,
    /// The part that is back in memory.
    pub back: Bytes,
}

/// The last check of an actor, for reports of another thread.
#[derive(Debug, Clone, Default)]
pub struct RefaultMeter(Arc<Mutex<Option<RefaultCheck>>>);

impl RefaultMeter {
    /// The last check. Paging out checks at most once a second, and not while nothing is paged out.
    #[must_use]
    pub fn last(&self) -> Option<RefaultCheck> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the last check.
    pub fn set(&self, when: Nanos, paged_out: Bytes, back: Bytes) {
        let check = RefaultCheck {
            when,
            paged_out,
            back,
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(check);
    }
}

/// The memory paged out within the window, and the share of it that is back.
#[derive(Debug)]
pub(super) struct Refaults {
    pub limit: Permille,
    pub window: Nanos,
    ranges: VecDeque<PagedOut>,
    last_check: Option<(Nanos, Permille)>,
    pub meter: RefaultMeter,
}

impl Refaults {
    pub(super) fn new(limit: Permille, window: Nanos) -> Self {
        Self {
            limit,
            window,
            ranges: VecDeque::new(),
            last_check: None,
            meter: RefaultMeter::default(),
        }
    }

    pub(super) fn record(&mut self, paged_out: PagedOut) {
        if paged_out.out == Bytes::ZERO {
            return;
        }
        if self.ranges.len() >= MAX_RANGES {
            self.ranges.pop_front();
        }
        self.ranges.push_back(paged_out);
    }

    /// The share of the memory paged out within the window that is back. `present_now` returns the present
    /// bytes of a range, or `None` when its process is gone.
    pub(super) fn share(&mut self, now: Nanos, present_now: impl Fn(&PagedOut) -> Option<Bytes>) -> Permille {
        if let Some((when, share)) = self.last_check
            && now.saturating_sub(when) < CHECK_EVERY
        {
            return share;
        }
        let (mut out, mut back) = (Bytes::ZERO, Bytes::ZERO);
        self.ranges.retain(|range| {
            if now.saturating_sub(range.when) > self.window {
                return false;
            }
            let Some(present) = present_now(range) else {
                return false;
            };
            out += range.out;
            back += present.saturating_sub(range.still_present).min(range.out);
            true
        });
        self.meter.set(now, out, back);
        let share = match out {
            out if out < MIN_BYTES => Permille(0),
            out => Permille(u32::try_from(u128::from(back.0) * 1000 / u128::from(out.0)).unwrap_or(1000)),
        };
        self.last_check = Some((now, share));
        share
    }

    /// Whether `share` is above the limit.
    pub(super) fn exceeds(&self, share: Permille) -> bool {
        share.0 > self.limit.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paged_out(when: u64, out: Bytes) -> PagedOut {
        let range = AddrRange::new(0, 64 << 20);
        PagedOut {
            when: Nanos::secs(when),
            target: TargetId(0),
            range,
            out,
            still_present: Bytes::mib(2),
        }
    }

    fn refaults() -> Refaults {
        Refaults::new(Permille(250), Nanos::secs(60))
    }

    #[test]
    fn refaults_exceed_only_above_limit() {
        for (present, share, too_much) in [
            (2, 0, false),
            (12, 250, false),
            (13, 275, true),
            (90, 1000, true),
            (1, 0, false),
        ] {
            let mut refaults = refaults();
            refaults.record(paged_out(1, Bytes::mib(40)));
            let found = refaults.share(Nanos::secs(2), |_| Some(Bytes::mib(present)));
            assert_eq!(
                (found, refaults.exceeds(found)),
                (Permille(share), too_much),
                "{present} MiB present"
            );
        }
    }

    #[test]
    fn refaults_ignore_little_and_old_memory() {
        let mut few = refaults();
        few.record(paged_out(1, Bytes::kib(8)));
        assert_eq!(few.share(Nanos::secs(2), |_| Some(Bytes::mib(64))), Permille(0));
        let mut old = refaults();
        old.record(paged_out(1, Bytes::mib(40)));
        assert_eq!(
            old.share(Nanos::secs(61), |_| Some(Bytes::mib(64))),
            Permille(1000)
        );
        assert_eq!(old.share(Nanos::secs(63), |_| Some(Bytes::mib(64))), Permille(0));
    }

    #[test]
    fn refaults_ignore_ended_process() {
        let mut refaults = refaults();
        refaults.record(paged_out(1, Bytes::mib(40)));
        assert_eq!(refaults.share(Nanos::secs(2), |_| None), Permille(0));
    }

    #[test]
    fn refaults_are_checked_once_a_second() {
        let mut refaults = refaults();
        refaults.record(paged_out(1, Bytes::mib(40)));
        let share = refaults.share(Nanos::secs(2), |_| Some(Bytes::mib(64)));
        assert_eq!(
            refaults.share(Nanos::millis(2500), |_| unreachable!("checked again")),
            share
        );
    }
}
