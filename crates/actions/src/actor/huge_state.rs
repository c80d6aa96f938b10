//! The actor's state of huge pages: options, flags that were set, and units in back-off.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_engine::TargetId;
use thermo_kernel::{clock, uname};
use thermo_units::{Addr, AddrRange, Nanos, Permille};

use super::flags::Flags;

/// Options for actions on huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugeOptions {
    /// `hugepage` also sets the mapping's flag, by a call injected into the target, so that the kernel
    /// continues by itself. `nohugepage` always sets its flag.
    pub set_flag: bool,
    /// Flags stay set when the actor ends.
    pub keep_flags: bool,
    /// Minimum share of present pages in a unit for `collapse`.
    pub min_present: Permille,
}

impl Default for HugeOptions {
    fn default() -> Self {
        Self {
            set_flag: false,
            keep_flags: false,
            min_present: Permille(800),
        }
    }
}

/// Back-off of a unit that could not be collapsed, doubled after each further failure. Often a page was only
/// pinned by the kernel at that moment.
const FIRST_BACKOFF: Nanos = Nanos::secs(2);
/// Maximum back-off.
const MAX_BACKOFF: Nanos = Nanos::secs(64);
/// Maximum number of units in back-off; above it all are forgotten.
const MAX_UNITS: usize = 1 << 16;

/// The actor's state of huge pages.
#[derive(Debug)]
pub(super) struct Huge {
    pub(super) options: HugeOptions,
    pub(super) flags: Flags,
    /// Whether the kernel frees pages of zeroes when it splits a huge page.
    pub(super) split_frees: bool,
    backoffs: BTreeMap<(TargetId, Addr), Backoff>,
}

/// The back-off of a unit.
#[derive(Debug, Clone, Copy)]
struct Backoff {
    until: Nanos,
    span: Nanos,
}

impl Backoff {
    /// The next back-off after `last`, starting now.
    fn after(last: Option<&Self>, now: Nanos) -> Self {
        let span = last.map_or(FIRST_BACKOFF, |last| (last.span * 2).min(MAX_BACKOFF));
        Self {
            until: now.saturating_add(span),
            span,
        }
    }
}

impl Huge {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            options: HugeOptions::default(),
            flags: Flags::new(root),
            // Since 6.12 a split maps parts that are all zeroes to the zero page.
            split_frees: uname::read(root).at_least(6, 12),
            backoffs: BTreeMap::new(),
        }
    }

    /// Starts a back-off for the `tried` units that did not become huge, and ends it for the others.
    pub(super) fn record_tries(&mut self, target: TargetId, tried: &[AddrRange], is_huge: &[bool]) {
        let now = clock::monotonic();
        if self.backoffs.len() > MAX_UNITS {
            self.backoffs.clear();
        }
        for (unit, is_huge) in tried.iter().zip(is_huge) {
            let key = (target, unit.start);
            if *is_huge {
                self.backoffs.remove(&key);
            } else {
                let backoff = Backoff::after(self.backoffs.get(&key), now);
                self.backoffs.insert(key, backoff);
            }
        }
    }

    pub(super) fn is_backed_off(&self, target: TargetId, unit: Addr, now: Nanos) -> bool {
        self.backoffs
            .get(&(target, unit))
            .is_some_and(|backoff| now < backoff.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_maximum() {
        let now = Nanos::secs(100);
        let mut backoff = Backoff::after(None, now);
        assert_eq!(backoff.until, Nanos::secs(102));
        for span in [4, 8, 16, 32, 64, 64] {
            backoff = Backoff::after(Some(&backoff), now);
            assert_eq!(
                (backoff.span, backoff.until),
                (Nanos::secs(span), Nanos::secs(100 + span))
            );
        }
    }
}
