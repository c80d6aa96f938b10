//! What becomes of the bytes of pages when they are scanned.

use super::byte::{ABSENT, FIRST, HISTORY, UNKNOWN, is_idle};
use crate::scan::chunk::{PageSeen, Word};

/// What the bytes of pages become in this pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Codes {
    /// Of a page that is seen for the first time, and not accessed.
    pub(super) fresh: u8,
    /// Of one whose accessed bit the first pass cleared, and which was not accessed since.
    pub(super) since_first: u8,
    /// Of one that no pass of the window found accessed any more.
    pub(super) went_idle: u8,
    /// Accessed bits that the first pass finds may be years old.
    pub(super) is_first_pass: bool,
}

/// How many pages were found accessed again, by the byte they had.
pub(super) type Reaccessed = [u32; 256];

impl Codes {
    /// Whether `word` leaves 64 bytes that are all `code` as they are.
    pub(super) const fn keeps(self, code: u8, word: &Word) -> bool {
        let Word {
            present,
            accessed,
            unknown,
            ..
        } = *word;
        present == u64::MAX
            && unknown == 0
            && (accessed == 0 && is_idle(code)
                || accessed == u64::MAX && code == HISTORY && !self.is_first_pass)
    }

    /// Most words are as they were: of memory that is never accessed, or all the time. Returns whether a byte changed.
    pub(super) fn take_in_word(self, bytes: &mut [u8; 64], word: &Word, reaccessed: &mut Reaccessed) -> bool {
        let all_idle = word.present == u64::MAX && word.accessed | word.unknown == 0;
        if all_idle && bytes.iter().fold(true, |all, byte| all & is_idle(*byte))
            || self.keeps(HISTORY, word) && *bytes == [HISTORY; 64]
        {
            return false;
        }
        if word.within == u64::MAX && word.present == 0 {
            let was = *bytes;
            bytes.fill(ABSENT);
            return was != *bytes;
        }
        let mut changed = false;
        for (nth, byte) in bytes.iter_mut().enumerate() {
            if word.within >> nth & 1 == 1 {
                let (seen, before) = (word.get(nth), *byte);
                *byte = self.next(seen, before);
                changed |= *byte != before;
                if seen == PageSeen::Accessed && was_idle(before) {
                    reaccessed[usize::from(before)] += 1;
                }
            }
        }
        changed
    }

    const fn next(self, seen: PageSeen, byte: u8) -> u8 {
        match (seen, byte) {
            (PageSeen::Absent, _) => ABSENT,
            (PageSeen::Unknown, _) => UNKNOWN,
            (PageSeen::Accessed, _) if self.is_first_pass => FIRST,
            (PageSeen::Accessed, history @ 1..=HISTORY) => (history << 1 | 1) & HISTORY,
            (PageSeen::Accessed, _) => 1,
            (PageSeen::Idle, ABSENT | UNKNOWN) => self.fresh,
            (PageSeen::Idle, FIRST) => self.since_first,
            (PageSeen::Idle, history @ 1..=HISTORY) => match (history << 1) & HISTORY {
                0 => self.went_idle,
                left => left,
            },
            (PageSeen::Idle, idle) => idle,
        }
    }
}

/// Whether the last scan of a page with this byte found it idle, and it is known since when.
const fn was_idle(byte: u8) -> bool {
    is_idle(byte) || byte != ABSENT && byte <= HISTORY && byte & 1 == 0
}
