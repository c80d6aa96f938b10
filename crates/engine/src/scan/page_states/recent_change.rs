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
