//! What the actor remembers of huge pages: how they are made, which flags it set, and which units are left alone for a while.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_engine::TargetId;
use thermo_kernel::{clock, uname};
use thermo_units::{Addr, AddrRange, Nanos, Permille};

use super::flags::Flags;

/// How huge pages are made and forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugeOptions {
    /// `hugepage` also sets the mapping's own flag, by a call the target is made to make, so that the kernel goes on by
    /// itself. `nohugepage` sets its flag always: that is what it is.
    pub set_flag: bool,
    /// Flags stay when the actor ends.
    pub keep_flags: bool,
    /// How much of a unit must be there for `collapse`.
    pub least_present: Permille,
}

impl Default for HugeOptions {
    fn default() -> Self {
        Self {
            set_flag: false,
            keep_flags: false,
            least_present: Permille(800),
        }
    }
}

/// A unit that could not be made huge is left alone for this long, and twice as long each further time: often a page of
/// it was only in use by the kernel at that moment.
const FIRST_REST: Nanos = Nanos::secs(2);
/// But no longer than this.
const LONGEST_REST: Nanos = Nanos::secs(64);
/// So many of them are remembered.
const MOST_RESTING: usize = 1 << 16;

/// What the actor remembers of huge pages.
#[derive(Debug)]
pub(super) struct Huge {
    pub(super) options: HugeOptions,
    pub(super) flags: Flags,
    /// Splitting alone gives back what is all zeroes.
    pub(super) split_frees: bool,
    resting: BTreeMap<(TargetId, Addr), Rest>,
}

/// How long a unit is left alone.
#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Nanos,
    span: Nanos,
}

impl Rest {
    /// The one that begins now, after `last`.
    fn after(last: Option<&Self>, now: Nanos) -> Self {
        let span = last.map_or(FIRST_REST, |last| (last.span * 2).min(LONGEST_REST));
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
            // Since 6.12 the parts of a page that is split are mapped to the page of zeroes where they are that.
            split_frees: uname::read(root).at_least(6, 12),
            resting: BTreeMap::new(),
        }
    }

    /// Notes which of `tried` did not become huge.
    pub(super) fn rest(&mut self, target: TargetId, tried: &[AddrRange], became: &[bool]) {
        let now = clock::monotonic();
        if self.resting.len() > MOST_RESTING {
            self.resting.clear();
        }
        for (unit, became) in tried.iter().zip(became) {
            let key = (target, unit.start);
            if *became {
                self.resting.remove(&key);
            } else {
                let rest = Rest::after(self.resting.get(&key), now);
                self.resting.insert(key, rest);
            }
        }
    }

    pub(super) fn rests(&self, target: TargetId, unit: Addr, now: Nanos) -> bool {
        self.resting
            .get(&(target, unit))
            .is_some_and(|rest| now < rest.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_fails_again_rests_longer() {
        let now = Nanos::secs(100);
        let mut rest = Rest::after(None, now);
        assert_eq!(rest.until, Nanos::secs(102));
        for span in [4, 8, 16, 32, 64, 64] {
            rest = Rest::after(Some(&rest), now);
            assert_eq!(
                (rest.span, rest.until),
                (Nanos::secs(span), Nanos::secs(100 + span))
            );
        }
    }
}
