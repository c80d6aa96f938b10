//! Changes of heat that can be told before the window has gone by.

use super::byte::HISTORY;
use crate::scan::WINDOW;

/// A change of heat counts as one when so many neighbouring pages made it in the same passes, and when each side of it is
/// so many passes long. Pages that are accessed at random do so by chance once in a hundred times, but not all at once.
pub(super) const PAGES_OF_STEP: usize = 16;
const PASSES_OF_STEP: u32 = 2;

/// A lasting change of heat within the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Idle, and then accessed in every pass.
    Began,
    /// Accessed in every pass, and then in none.
    Ended,
}

impl Step {
    /// The one change in a page's byte, if it has exactly one and both sides of it lasted.
    pub(super) fn of(byte: u8) -> Option<Self> {
        if byte > HISTORY {
            return None;
        }
        let (accessed, newest) = (byte.count_ones(), byte.trailing_ones());
        let rest = WINDOW - accessed;
        if accessed < PASSES_OF_STEP || rest < PASSES_OF_STEP {
            None
        } else if newest == accessed {
            Some(Self::Began)
        } else {
            (byte.trailing_zeros() == rest).then_some(Self::Ended)
        }
    }
}
