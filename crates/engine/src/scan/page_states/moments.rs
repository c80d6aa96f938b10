//! The moments since which pages have been idle, each by a number that fits into a page's byte.
//!
//! When the numbers run out, moments of no page are given up, and moments that are close for their age become one: old
//! ages become coarser, young ones stay exact.

use thermo_units::Nanos;

/// How many moments there can be.
pub(super) const MOST: usize = 126;

/// Ascending moments.
#[derive(Debug, Clone, Default)]
pub(super) struct Moments(Vec<Nanos>);

/// Where the number of a moment went.
#[derive(Debug)]
pub(super) struct Moved(pub(super) [u8; MOST]);

impl Moments {
    /// The moment of `number`.
    pub(super) fn get(&self, number: u8) -> Nanos {
        self.0.get(usize::from(number)).copied().unwrap_or_default()
    }

    pub(super) const fn is_full(&self, more: usize) -> bool {
        self.0.len() + more > MOST
    }

    /// The number of `moment`, which may be new; with it, where the others went if they had to make way.
    pub(super) fn number_of(&mut self, moment: Nanos) -> (u8, Option<Moved>) {
        let (number, is_new) = match self.0.binary_search(&moment) {
            Ok(number) => (number, false),
            Err(number) => (number, true),
        };
        let mut moved = None;
        if is_new {
            if number < self.0.len() {
                moved = Some(Moved(std::array::from_fn(|old| {
                    u8::try_from(old + usize::from(old >= number)).unwrap_or(u8::MAX)
                })));
            }
            self.0.insert(number, moment);
        }
        (u8::try_from(number).unwrap_or(0), moved)
    }

    /// Says that what was given the moment `early` happened as late as `late`. Only the last moment can be put off.
    pub(super) fn put_off(&mut self, early: Nanos, late: Nanos) {
        if let [before @ .., last] = self.0.as_mut_slice()
            && *last == early
            && before.last().is_none_or(|before| *before < late)
        {
            *last = late;
        }
    }

    /// Makes room: moments whose number is not `used` go; while that is not enough, the two become one that are closest
    /// for their age. Their pages count as idle since the later one, which never makes memory look older than it is.
    pub(super) fn make_room(&mut self, used: impl Fn(u8) -> bool) -> Moved {
        let mut kept: Vec<(Nanos, Vec<usize>)> = Vec::new();
        for (number, moment) in self.0.iter().enumerate() {
            if used(u8::try_from(number).unwrap_or(u8::MAX)) {
                kept.push((*moment, vec![number]));
            }
        }
        let newest = self.0.last().copied().unwrap_or_default();
        while kept.len() > MOST / 2 {
            let closeness = |pair: &[(Nanos, Vec<usize>)]| {
                let (gap, age) = (pair[1].0 - pair[0].0, newest - pair[0].0);
                u128::from(gap.0) * 1_000_000 / u128::from(age.0.max(1))
            };
            let closest = kept
                .windows(2)
                .map(closeness)
                .enumerate()
                .min_by_key(|(_, gap)| *gap);
            let Some((first, _)) = closest else { break };
            let (_, numbers) = kept.remove(first);
            kept[first].1.extend(numbers);
        }
        let mut moved = [0; MOST];
        for (new, (_, numbers)) in (0..=u8::MAX).zip(&kept) {
            for number in numbers {
                moved[*number] = new;
            }
        }
        self.0 = kept.into_iter().map(|(moment, _)| moment).collect();
        Moved(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_moment_moves_those_behind_it() {
        let mut moments = Moments::default();
        assert_eq!(moments.number_of(Nanos(50)).0, 0);
        let (number, moved) = moments.number_of(Nanos(40));
        let moved = moved.map(|moved| moved.0[0]);
        assert_eq!((number, moved), (0, Some(1)));
        assert!(moments.number_of(Nanos(60)).1.is_none());
        assert_eq!(
            [0, 1, 2].map(|number| moments.get(number)),
            [40, 50, 60].map(Nanos)
        );
        moments.put_off(Nanos(60), Nanos(66));
        moments.put_off(Nanos(40), Nanos(90));
        assert_eq!([0, 2].map(|number| moments.get(number)), [40, 66].map(Nanos));
    }

    #[test]
    fn room_is_made_where_it_hurts_least() {
        let mut moments = Moments::default();
        for nth in 0..MOST as u64 {
            moments.number_of(Nanos::secs(nth));
        }
        assert!(moments.is_full(1));
        let moved = moments.make_room(|number| number != 5);
        assert!(!moments.is_full(MOST / 2));
        let last = moved.0[MOST - 1];
        assert_eq!(moments.get(last), Nanos::secs(MOST as u64 - 1));
        for old in (0..MOST).filter(|old| *old != 5) {
            let (before, now) = (Nanos::secs(old as u64), moments.get(moved.0[old]));
            assert!(now >= before, "{old} became older");
            let age = Nanos::secs((MOST - 1 - old) as u64);
            assert!(
                now - before <= Nanos(age.0 / 2).max(Nanos::secs(2)),
                "{old} became {now}"
            );
        }
    }
}
