//! Changes of heat that can be told before the window has gone by.

use super::HISTORY;
use crate::sweep::WINDOW;

/// A change of heat counts as one when so many neighbouring pages made it in the same rounds, and when each side of it is
/// so many rounds long. Pages that are touched at random do so by chance once in a hundred times, but not all at once.
pub(super) const PAGES_OF_STEP: usize = 16;
const ROUNDS_OF_STEP: u32 = 2;

/// A lasting change of heat within the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Untouched, and then touched in every round.
    Began,
    /// Touched, and then in none of the last `rounds`.
    Ended { rounds: u32 },
}

impl Step {
    /// The one change in a page's byte, if it has exactly one and both sides of it lasted.
    pub(super) fn of(byte: u8) -> Option<Self> {
        if byte > HISTORY {
            return None;
        }
        let (touched, newest) = (byte.count_ones(), byte.trailing_ones());
        let rest = WINDOW - touched;
        if touched < ROUNDS_OF_STEP || rest < ROUNDS_OF_STEP {
            None
        } else if newest == touched {
            Some(Self::Began)
        } else {
            (byte.trailing_zeros() == rest).then_some(Self::Ended { rounds: rest })
        }
    }

    /// Whether a byte would tell of a change if the next round saw what the last did.
    pub(super) const fn is_near(byte: u8) -> bool {
        let before = byte >> 1;
        let ended = byte <= HISTORY && byte & 1 == 0 && before.trailing_ones() == before.count_ones();
        byte == 1 || ended && before.count_ones() >= ROUNDS_OF_STEP
    }
}
