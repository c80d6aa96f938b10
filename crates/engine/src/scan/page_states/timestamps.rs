//! The timestamps since which pages have been idle. Each has an index that fits into a page's byte.
//!
//! When the indices run out, unused timestamps are dropped, and timestamps that are close relative to their
//! age are merged: old ages become coarser, recent ones stay exact. A merged timestamp remembers the earliest
//! one that it stands for. So the error of an age stays small relative to the age, however often timestamps
//! are merged.

use thermo_units::Nanos;

/// Maximum number of timestamps.
pub(super) const MAX_TIMESTAMPS: usize = 126;

/// Timestamps in ascending order.
#[derive(Debug, Clone, Default)]
pub(super) struct Timestamps(Vec<Timestamp>);

/// A timestamp, and the earliest one merged into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timestamp {
    earliest: Nanos,
    at: Nanos,
}

/// The new index of each old index.
#[derive(Debug)]
pub(super) struct Renumbering(pub(super) [u8; MAX_TIMESTAMPS]);

impl Timestamps {
    /// The timestamp with `index`.
    pub(super) fn get(&self, index: u8) -> Nanos {
        let found = self.0.get(usize::from(index));
        found.map(|timestamp| timestamp.at).unwrap_or_default()
    }

    /// The index of a timestamp that was inserted before. Of one that was not, the index of the next later.
    pub(super) fn index_of_present(&self, timestamp: Nanos) -> u8 {
        let index = self.0.partition_point(|other| other.at < timestamp);
        u8::try_from(index.min(self.0.len().saturating_sub(1))).unwrap_or(0)
    }

    /// True if there is no room for `more` timestamps.
    pub(super) const fn is_full(&self, more: usize) -> bool {
        self.0.len() + more > MAX_TIMESTAMPS
    }

    /// Returns the index of `timestamp`, which is inserted if it is new, and the renumbering of later
    /// timestamps, if there are any.
    pub(super) fn index_of(&mut self, timestamp: Nanos) -> (u8, Option<Renumbering>) {
        let (index, is_new) = match self.0.binary_search_by_key(&timestamp, |other| other.at) {
            Ok(index) => (index, false),
            Err(index) => (index, true),
        };
        let mut renumbering = None;
        if is_new {
            if index < self.0.len() {
                renumbering = Some(Renumbering(std::array::from_fn(|old| {
                    u8::try_from(old + usize::from(old >= index)).unwrap_or(u8::MAX)
                })));
            }
            let exact = Timestamp {
                earliest: timestamp,
                at: timestamp,
            };
            self.0.insert(index, exact);
        }
        (u8::try_from(index).unwrap_or(0), renumbering)
    }

    /// Changes the timestamp `early` to `late`. Does nothing unless `early` is the last timestamp.
    pub(super) fn postpone_last(&mut self, early: Nanos, late: Nanos) {
        if let [before @ .., last] = self.0.as_mut_slice()
            && last.at == early
            && before.last().is_none_or(|before| before.at < late)
        {
            (last.earliest, last.at) = (late, late);
        }
    }

    /// Makes room: drops timestamps that are not `used`. If more than half remain, merges the pairs that span
    /// the least time relative to their age. Their pages then count as idle since the later one, so that no
    /// page gets older.
    pub(super) fn make_room(&mut self, used: impl Fn(u8) -> bool) -> Renumbering {
        let mut kept: Vec<(Timestamp, Vec<usize>)> = Vec::new();
        for (index, timestamp) in self.0.iter().enumerate() {
            if used(u8::try_from(index).unwrap_or(u8::MAX)) {
                kept.push((*timestamp, vec![index]));
            }
        }
        let newest = self.0.last().map(|last| last.at).unwrap_or_default();
        while kept.len() > MAX_TIMESTAMPS / 2 {
            let relative_span = |pair: &[(Timestamp, Vec<usize>)]| {
                let earliest = pair[0].0.earliest;
                let (span, age) = (pair[1].0.at - earliest, newest - earliest);
                u128::from(span.0) * 1_000_000 / u128::from(age.0.max(1))
            };
            let closest = kept
                .windows(2)
                .map(relative_span)
                .enumerate()
                .min_by_key(|(_, span)| *span);
            let Some((first, _)) = closest else { break };
            let (merged, indices) = kept.remove(first);
            kept[first].0.earliest = merged.earliest;
            kept[first].1.extend(indices);
        }
        let mut new_indices = [0; MAX_TIMESTAMPS];
        for (new, (_, old_indices)) in (0..=u8::MAX).zip(&kept) {
            for old in old_indices {
                new_indices[*old] = new;
            }
        }
        self.0 = kept.into_iter().map(|(timestamp, _)| timestamp).collect();
        Renumbering(new_indices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_timestamp_renumbers_later_ones() {
        let mut timestamps = Timestamps::default();
        assert_eq!(timestamps.index_of(Nanos(50)).0, 0);
        let (index, renumbering) = timestamps.index_of(Nanos(40));
        let moved = renumbering.map(|renumbering| renumbering.0[0]);
        assert_eq!((index, moved), (0, Some(1)));
        assert!(timestamps.index_of(Nanos(60)).1.is_none());
        assert_eq!(
            [0, 1, 2].map(|index| timestamps.get(index)),
            [40, 50, 60].map(Nanos)
        );
        timestamps.postpone_last(Nanos(60), Nanos(66));
        timestamps.postpone_last(Nanos(40), Nanos(90));
        assert_eq!([0, 2].map(|index| timestamps.get(index)), [40, 66].map(Nanos));
    }

    #[test]
    fn postponed_timestamp_stays_behind_the_one_before() {
        let mut timestamps = Timestamps::default();
        timestamps.index_of(Nanos(40));
        timestamps.index_of(Nanos(41));
        // A pass that ends the moment it begins.
        timestamps.postpone_last(Nanos(41), Nanos(40));
        assert_eq!([0, 1].map(|index| timestamps.get(index)), [40, 41].map(Nanos));
        timestamps.postpone_last(Nanos(41), Nanos(45));
        assert_eq!([0, 1].map(|index| timestamps.get(index)), [40, 45].map(Nanos));
    }

    #[test]
    fn make_room_keeps_recent_timestamps_and_up_to_half_of_all() {
        let mut all = Timestamps::default();
        for nth in 0..MAX_TIMESTAMPS as u64 {
            all.index_of(Nanos::secs(nth));
        }
        let mut merged = all.clone();
        let renumbering = merged.make_room(|_| true);
        for old in MAX_TIMESTAMPS - 10..MAX_TIMESTAMPS {
            let now = merged.get(renumbering.0[old]);
            assert_eq!(now, Nanos::secs(old as u64), "a recent age became coarser");
        }
        let half = MAX_TIMESTAMPS / 2;
        let renumbering = all.make_room(|index| usize::from(index) < half);
        for old in 0..half {
            assert_eq!(all.get(renumbering.0[old]), Nanos::secs(old as u64), "merged");
        }
    }

    #[test]
    fn make_room_merges_close_timestamps_to_later() {
        let mut timestamps = Timestamps::default();
        for nth in 0..MAX_TIMESTAMPS as u64 {
            timestamps.index_of(Nanos::secs(nth));
        }
        assert!(timestamps.is_full(1));
        let renumbering = timestamps.make_room(|index| index != 5);
        assert!(!timestamps.is_full(MAX_TIMESTAMPS / 2));
        let last = renumbering.0[MAX_TIMESTAMPS - 1];
        assert_eq!(timestamps.get(last), Nanos::secs(MAX_TIMESTAMPS as u64 - 1));
        for old in (0..MAX_TIMESTAMPS).filter(|old| *old != 5) {
            let (before, now) = (Nanos::secs(old as u64), timestamps.get(renumbering.0[old]));
            assert!(now >= before, "{old} became older");
            let age = Nanos::secs((MAX_TIMESTAMPS - 1 - old) as u64);
            assert!(
                now - before <= Nanos(age.0 / 4).max(Nanos::secs(2)),
                "{old} became {now}"
            );
        }
    }
}
