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
pub(super) const fn was_idle(byte: u8) -> bool {
    is_idle(byte) || byte != ABSENT && byte <= MAX_HISTORY && byte & 1 == 0
}

#[cfg(test)]
mod tests {
    use super::super::byte::FIRST_TIMESTAMP;
    use super::*;

    const IDLE: u8 = FIRST_TIMESTAMP + 7;

    const fn transitions(is_first_pass: bool) -> Transitions {
        Transitions {
            first_seen: 201,
            not_accessed_since_first: 202,
            left_window: 203,
            is_first_pass,
        }
    }

    #[test]
    fn byte_follows_result_of_scan() {
        use ScanResult::{Absent, Accessed, Idle, Unknown};
        let later = transitions(false);
        for byte in [ABSENT, 1, 0b100_0000, MAX_HISTORY, IDLE, FIRST_SCAN, UNKNOWN] {
            assert_eq!(later.next(Absent, byte), ABSENT);
            assert_eq!(later.next(Unknown, byte), UNKNOWN);
            assert_eq!(transitions(true).next(Accessed, byte), FIRST_SCAN);
        }
        let accessed = [ABSENT, IDLE, FIRST_SCAN, UNKNOWN, 1, 0b100_0010, MAX_HISTORY];
        let expected = [1, 1, 1, 1, 0b11, 0b000_0101, MAX_HISTORY];
        assert_eq!(accessed.map(|byte| later.next(Accessed, byte)), expected);
        let idle = [
            ABSENT,
            UNKNOWN,
            FIRST_SCAN,
            1,
            MAX_HISTORY,
            0b100_0000,
            FIRST_TIMESTAMP,
            IDLE,
        ];
        let expected = [201, 201, 202, 0b10, 0b111_1110, 203, FIRST_TIMESTAMP, IDLE];
        assert_eq!(idle.map(|byte| later.next(Idle, byte)), expected);
    }

    #[test]
    fn page_was_idle_if_its_last_scan_found_it_idle() {
        let idle = [0b10, 0b111_1110, FIRST_TIMESTAMP, IDLE, FIRST_SCAN - 1];
        assert_eq!(idle.map(was_idle), [true; 5]);
        let others = [ABSENT, 1, 0b11, 0b101, MAX_HISTORY, FIRST_SCAN, UNKNOWN];
        assert_eq!(others.map(was_idle), [false; 7]);
    }

    /// Words with all combinations of these bitmaps.
    fn words() -> impl Iterator<Item = Word> {
        let bitmaps = [0, 1, 1 << 63, 0xffff_0000, u64::MAX >> 1, u64::MAX];
        let pairs = move || bitmaps.into_iter().flat_map(move |a| bitmaps.map(|b| (a, b)));
        pairs().flat_map(move |(within, present)| {
            pairs().map(move |(accessed, unknown)| Word {
                within,
                present: present & within,
                accessed: accessed & present & within,
                unknown: unknown & present & within,
                ..Word::default()
            })
        })
    }

    #[test]
    fn word_is_updated_page_by_page() {
        let mixed = std::array::from_fn(|nth| [IDLE, MAX_HISTORY, ABSENT, UNKNOWN][nth % 4]);
        let almost = |byte: u8, last: u8| {
            let mut bytes = [byte; 64];
            bytes[63] = last;
            bytes
        };
        let states = [
            [ABSENT; 64],
            [IDLE; 64],
            [MAX_HISTORY; 64],
            almost(IDLE, 1),
            almost(MAX_HISTORY, 0b111_1110),
            mixed,
        ];
        for transitions in [transitions(true), transitions(false)] {
            for (word, before) in words().flat_map(|word| states.map(|bytes| (word, bytes))) {
                let mut expected = before;
                let mut expected_reaccessed = [0; 256];
                for nth in (0..64).filter(|nth| word.within >> nth & 1 == 1) {
                    expected[nth] = transitions.next(word.get(nth), before[nth]);
                    let is_reaccess = word.get(nth) == ScanResult::Accessed && was_idle(before[nth]);
                    expected_reaccessed[usize::from(before[nth])] += u32::from(is_reaccess);
                }
                let (mut bytes, mut reaccessed) = (before, [0; 256]);
                let changed = transitions.update_word(&mut bytes, &word, &mut reaccessed);
                assert_eq!(bytes, expected, "{word:?} {before:?}");
                assert_eq!(changed, before != expected, "{word:?} {before:?}");
                assert_eq!(reaccessed, expected_reaccessed, "{word:?} {before:?}");
                // A word that is skipped for a uniform chunk would not have changed.
                if before == [before[0]; 64] && transitions.keeps(before[0], &word) {
                    assert!(!changed, "{word:?} {before:?}");
                }
            }
        }
    }
}
