//! What becomes of the bytes of pages when they are looked at.

use super::{ABSENT, HISTORY, UNKNOWN, is_idle};
use crate::sweep::piece::{PageSeen, Word};

/// What the bytes of pages become that a round looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Codes {
    /// Of a page that is seen for the first time, and idle.
    pub(super) fresh: u8,
    /// Of one that was touched in no round of the window any more.
    pub(super) went_idle: u8,
    pub(super) is_first_look: bool,
}

impl Codes {
    /// Most words are as they were: of memory that nobody touches, or all the time.
    pub(super) fn take_in_word(self, bytes: &mut [u8; 64], word: &Word) {
        let Word {
            within,
            present,
            accessed,
            unknown,
            ..
        } = *word;
        let all_idle = present == u64::MAX && accessed | unknown == 0;
        let all_touched = accessed == u64::MAX && unknown == 0 && !self.is_first_look;
        if all_idle && bytes.iter().fold(true, |all, byte| all & is_idle(*byte))
            || all_touched && *bytes == [HISTORY; 64]
        {
            return;
        }
        if within == u64::MAX && present == 0 {
            return bytes.fill(ABSENT);
        }
        for (nth, byte) in bytes.iter_mut().enumerate() {
            if within >> nth & 1 == 1 {
                *byte = self.next(word.get(nth), *byte);
            }
        }
    }

    const fn next(self, seen: PageSeen, byte: u8) -> u8 {
        match (seen, byte) {
            (PageSeen::Absent, _) => ABSENT,
            (PageSeen::Unknown, _) => UNKNOWN,
            (PageSeen::Accessed, _) if self.is_first_look => UNKNOWN,
            (PageSeen::Accessed, history @ 1..=HISTORY) => (history << 1 | 1) & HISTORY,
            (PageSeen::Accessed, _) => 1,
            (PageSeen::Idle, ABSENT | UNKNOWN) => self.fresh,
            (PageSeen::Idle, history @ 1..=HISTORY) => match (history << 1) & HISTORY {
                0 => self.went_idle,
                left => left,
            },
            (PageSeen::Idle, idle) => idle,
        }
    }
}
