//! Changes of the access pattern that can be detected before the whole window has passed.

use super::byte::MAX_HISTORY;
use crate::scan::WINDOW;

/// Minimum number of neighbouring pages that change in the same pass. A single page that is accessed at
/// random has such a history in about 1 of 100 windows; many neighbouring pages do not have it at the same
/// time.
pub(super) const MIN_PAGES: usize = 16;
/// Minimum number of passes before and after the change.
const MIN_PASSES: u32 = 2;

/// A lasting change of the access pattern within the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecentChange {
    /// Idle in every pass before the change, accessed in every pass after it.
    BecameAccessed,
    /// Accessed in every pass before the change, idle in every pass after it.
    BecameIdle,
}

impl RecentChange {
    /// The change in a page's history, if there is exactly one with enough passes before and after it.
    pub(super) fn in_history(byte: u8) -> Option<Self> {
        if byte > MAX_HISTORY {
            return None;
        }
        let (accessed, newest) = (byte.count_ones(), byte.trailing_ones());
        let idle = WINDOW - accessed;
        if accessed < MIN_PASSES || idle < MIN_PASSES {
            None
        } else if newest == accessed {
            Some(Self::BecameAccessed)
        } else {
            (byte.trailing_zeros() == idle).then_some(Self::BecameIdle)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_recent_if_it_lasts_two_passes() {
        use RecentChange::{BecameAccessed, BecameIdle};
        let found = [0b000_0011, 0b001_1111, 0b111_1100, 0b110_0000].map(RecentChange::in_history);
        let expected = [BecameAccessed, BecameAccessed, BecameIdle, BecameIdle];
        assert_eq!(found, expected.map(Some));
        // One pass only, several changes, or none.
        for history in [
            0b000_0001, 0b011_1111, 0b111_1110, 0b100_0000, 0b011_0000, 0b101_1111, 0b111_1111,
        ] {
            assert_eq!(RecentChange::in_history(history), None, "{history:07b}");
        }
    }

    #[test]
    fn bytes_without_history_have_no_change() {
        for byte in MAX_HISTORY + 1..=u8::MAX {
            assert_eq!(RecentChange::in_history(byte), None, "{byte}");
        }
    }
}
