//! Transitions of page state bytes when pages are scanned.

use super::byte::{ABSENT, FIRST_SCAN, MAX_HISTORY, UNKNOWN, is_idle};
use crate::scan::chunk::{ScanResult, Word};

/// Transitions of page state bytes in the running pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transitions {
    /// New byte of an idle page whose state was not known before.
    pub(super) first_seen: u8,
    /// New byte of a page that was not accessed since the first pass cleared its accessed bit.
    pub(super) not_accessed_since_first: u8,
    /// New byte of a page whose last accessed pass leaves the window.
    pub(super) left_window: u8,
    /// True if accessed bits may be years old, because this pass is the first.
    pub(super) is_first_pass: bool,
}

/// Number of re-accessed pages by previous byte.
pub(super) type ReaccessCounts = [u32; 256];

impl Transitions {
    /// True if `word` does not change 64 bytes that are all `byte`.
    pub(super) const fn keeps(self, byte: u8, word: &Word) -> bool {
        let Word {
            present,
            accessed,
            unknown,
            ..
        } = *word;
        present == u64::MAX
            && unknown == 0
            && (accessed == 0 && is_idle(byte)
                || accessed == u64::MAX && byte == MAX_HISTORY && !self.is_first_pass)
    }

    /// Updates the bytes of 64 pages. Returns true if a byte changed. The fast path serves most words: memory
    /// that is never accessed or accessed in every pass.
    pub(super) fn update_word(
        self,
        bytes: &mut [u8; 64],
        word: &Word,
        reaccessed: &mut ReaccessCounts,
    ) -> bool {
        let all_idle = word.present == u64::MAX && word.accessed | word.unknown == 0;
        if all_idle && bytes.iter().fold(true, |all, byte| all & is_idle(*byte))
            || self.keeps(MAX_HISTORY, word) && *bytes == [MAX_HISTORY; 64]
        {
            return false;
        }
        if word.within == u64::MAX && word.present == 0 {
            let before = *bytes;
            bytes.fill(ABSENT);
            return before != *bytes;
        }
        let mut changed = false;
        for (nth, byte) in bytes.iter_mut().enumerate() {
            if word.within >> nth & 1 == 1 {
                let (result, before) = (word.get(nth), *byte);
                *byte = self.next(result, before);
                changed |= *byte != before;
                if result == ScanResult::Accessed && was_idle(before) {
                    reaccessed[usize::from(before)] += 1;
                }
            }
        }
        changed
    }

    const fn next(self, result: ScanResult, byte: u8) -> u8 {
        match (result, byte) {
            (ScanResult::Absent, _) => ABSENT,
            (ScanResult::Unknown, _) => UNKNOWN,
            (ScanResult::Accessed, _) if self.is_first_pass => FIRST_SCAN,
            (ScanResult::Accessed, history @ 1..=MAX_HISTORY) => (history << 1 | 1) & MAX_HISTORY,
            (ScanResult::Accessed, _) => 1,
            (ScanResult::Idle, ABSENT | UNKNOWN) => self.first_seen,
            (ScanResult::Idle, FIRST_SCAN) => self.not_accessed_since_first,
            (ScanResult::Idle, history @ 1..=MAX_HISTORY) => match (history << 1) & MAX_HISTORY {
                0 => self.left_window,
                shifted => shifted,
            },
            (ScanResult::Idle, idle) => idle,
        }
    }
}

/// True if the last scan of a page with `byte` found it idle and its idle time is known.
const fn was_idle(byte: u8) -> bool {
    is_idle(byte) || byte != ABSENT && byte <= MAX_HISTORY && byte & 1 == 0
}
