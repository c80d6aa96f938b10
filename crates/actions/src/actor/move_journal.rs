//! Which memory was moved between nodes, when and from where. Two schemes that work against each other, one
//! for each direction, would otherwise move the same pages to and fro.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use thermo_engine::TargetId;
use thermo_units::{Addr, AddrRange, Bytes, Nanos};

/// The most ranges of one target. Beyond, those whose cool-down is over are forgotten.
const MAX_RANGES: usize = 1 << 16;

/// Memory that an actor moved between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// All that was moved.
    pub bytes: Bytes,
    /// The part that went back to a node from which it had been moved before.
    pub back: Bytes,
}

/// What an actor has moved so far, for reports of another thread.
#[derive(Debug, Clone, Default)]
pub struct MigrationMeter(Arc<Mutex<Moved>>);

impl MigrationMeter {
    /// The sums since the start.
    #[must_use]
    pub fn total(&self) -> Moved {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, moved: Moved) {
        let mut total = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        total.bytes += moved.bytes;
        total.back += moved.back;
    }
}

/// The last move of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    end: Addr,
    /// The node the range was on before; `None` for a range that could not be moved.
    from: Option<u32>,
    at: Nanos,
}

/// The moves of all targets.
#[derive(Debug, Default)]
pub(super) struct MoveJournal {
    /// How long memory stays where it was moved to, and how long a page that could not be moved is left
    /// alone.
    pub(super) cool_down: Nanos,
    pub(super) meter: MigrationMeter,
    targets: BTreeMap<TargetId, BTreeMap<Addr, Entry>>,
}

/// A page that could not be moved is tried again after this long.
const RETRY: Nanos = Nanos::secs(10);

impl MoveJournal {
    /// Whether the page at `addr` was moved, or could not be moved, too recently.
    pub(super) fn is_cooling(&self, target: TargetId, addr: Addr, now: Nanos) -> bool {
        self.entry(target, addr)
            .is_some_and(|entry| self.is_recent(&entry, now))
    }

    fn is_recent(&self, entry: &Entry, now: Nanos) -> bool {
        let time = if entry.from.is_some() {
            self.cool_down
        } else {
            RETRY
        };
        now < entry.at.saturating_add(time)
    }

    fn entry(&self, target: TargetId, addr: Addr) -> Option<Entry> {
        let entries = self.targets.get(&target)?;
        let (_, entry) = entries.range(..=addr).next_back()?;
        (addr < entry.end).then_some(*entry)
    }

    /// Records that `range` went from node `from` to node `to`. Returns the part that had been moved the
    /// other way before.
    pub(super) fn moved(
        &mut self,
        target: TargetId,
        range: AddrRange,
        (from, to): (u32, u32),
        now: Nanos,
    ) -> Bytes {
        let before = self.entry(target, range.start);
        let back = match before.is_some_and(|entry| entry.from == Some(to)) {
            true => range.len(),
            false => Bytes::ZERO,
        };
        self.meter.add(Moved {
            bytes: range.len(),
            back,
        });
        self.record(target, range, Some(from), now);
        back
    }

    /// Records that `range` could not be moved.
    pub(super) fn failed(&mut self, target: TargetId, range: AddrRange, now: Nanos) {
        // Where it came from stays known.
        if self
            .entry(target, range.start)
            .is_none_or(|entry| entry.from.is_none())
        {
            self.record(target, range, None, now);
        }
    }

    fn record(&mut self, target: TargetId, range: AddrRange, from: Option<u32>, at: Nanos) {
        self.make_room(target, at);
        let entries = self.targets.entry(target).or_default();
        cut_out(entries, range);
        let mut range = range;
        // Moves come by ascending address, so that most of them continue the last one.
        if let Some((start, last)) = entries.range(..range.start).next_back()
            && (last.end, last.from, last.at) == (range.start, from, at)
        {
            range.start = *start;
        }
        entries.insert(
            range.start,
            Entry {
                end: range.end,
                from,
                at,
            },
        );
    }

    fn make_room(&mut self, target: TargetId, now: Nanos) {
        let Some(mut entries) = self.targets.remove(&target) else {
            return;
        };
        if entries.len() >= MAX_RANGES {
            entries.retain(|_, entry| self.is_recent(entry, now));
        }
        self.targets.insert(target, entries);
    }

    /// Forgets all targets but those for which `is_known` is true.
    pub(super) fn keep_only(&mut self, is_known: impl Fn(TargetId) -> bool) {
        self.targets.retain(|target, _| is_known(*target));
    }
}

/// Removes `range` from `entries`; those that lie across its ends keep the rest.
fn cut_out(entries: &mut BTreeMap<Addr, Entry>, range: AddrRange) {
    let before = entries
        .range(..range.start)
        .next_back()
        .map(|(start, entry)| (*start, *entry));
    if let Some((start, entry)) = before.filter(|(_, entry)| entry.end > range.start) {
        entries.insert(
            start,
            Entry {
                end: range.start,
                ..entry
            },
        );
        if entry.end > range.end {
            entries.insert(range.end, entry);
        }
    }
    let inside: Vec<(Addr, Entry)> = entries
        .range(range.start..range.end)
        .map(|(a, e)| (*a, *e))
        .collect();
    for (start, entry) in inside {
        entries.remove(&start);
        if entry.end > range.end {
            entries.insert(range.end, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: TargetId = TargetId(3);

    fn journal() -> MoveJournal {
        MoveJournal {
            cool_down: Nanos::secs(60),
            ..MoveJournal::default()
        }
    }

    #[test]
    fn moved_memory_cools_down_and_its_way_back_is_counted() {
        let mut journal = journal();
        let range = |start: u64, end: u64| AddrRange::new(start << 12, end << 12);
        journal.moved(TARGET, range(0, 10), (1, 0), Nanos::secs(5));
        let cooling = |journal: &MoveJournal, page: u64, secs| {
            journal.is_cooling(TARGET, Addr(page << 12), Nanos::secs(secs))
        };
        assert!(cooling(&journal, 0, 5) && cooling(&journal, 9, 64));
        assert!(!cooling(&journal, 9, 65) && !cooling(&journal, 10, 5));
        assert!(!journal.is_cooling(TargetId(4), Addr(0), Nanos::secs(5)));
        assert_eq!(journal.meter.total().back, Bytes::ZERO);
        // Four pages go back, later; a move to a third node is no way back.
        let back = journal.moved(TARGET, range(2, 6), (0, 1), Nanos::secs(70));
        assert_eq!(back, Bytes(4 << 12));
        journal.moved(TARGET, range(8, 9), (0, 2), Nanos::secs(70));
        let total = journal.meter.total();
        assert_eq!((total.bytes, total.back), (Bytes(15 << 12), Bytes(4 << 12)));
        assert!(!cooling(&journal, 1, 70) && cooling(&journal, 2, 70) && cooling(&journal, 5, 70));
        assert!(!cooling(&journal, 6, 70) && cooling(&journal, 8, 70) && !cooling(&journal, 9, 70));
    }

    #[test]
    fn failed_pages_are_tried_again_and_keep_their_origin() {
        let mut journal = journal();
        let page = AddrRange::new(0x1000, 0x2000);
        journal.failed(TARGET, page, Nanos::secs(1));
        assert!(journal.is_cooling(TARGET, page.start, Nanos::secs(10)));
        assert!(!journal.is_cooling(TARGET, page.start, Nanos::secs(11)));
        journal.moved(TARGET, page, (1, 0), Nanos::secs(20));
        journal.failed(TARGET, page, Nanos::secs(100));
        journal.moved(TARGET, page, (0, 1), Nanos::secs(120));
        assert_eq!(journal.meter.total().back, Bytes(4096));
        journal.keep_only(|target| target != TARGET);
        assert!(!journal.is_cooling(TARGET, page.start, Nanos::secs(120)));
    }

    #[test]
    fn adjacent_moves_share_an_entry() {
        let mut journal = journal();
        for page in 0..100 {
            let range = AddrRange::new(page << 12, (page + 1) << 12);
            journal.moved(TARGET, range, (1, 0), Nanos::secs(5));
        }
        assert_eq!(journal.targets[&TARGET].len(), 1);
        journal.moved(TARGET, AddrRange::new(0, 200 << 12), (0, 1), Nanos::secs(6));
        assert_eq!(journal.targets[&TARGET].len(), 1);
    }
}
