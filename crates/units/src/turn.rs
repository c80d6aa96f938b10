//! Visits to the entries of a map in turn, a few at a time.

use std::collections::BTreeMap;
use std::ops::Bound;

/// The entry of a map that was visited last. The next visit goes on behind it, whatever was added to the map
/// or removed from it meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn<K>(Option<K>);

impl<K> Default for Turn<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Ord> Turn<K> {
    /// Each entry of `map` once, in turn. Call [`Turn::set`] for those that are visited.
    pub fn entries<'a, V>(
        &self,
        map: &'a BTreeMap<K, V>,
    ) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        let last = self.0.as_ref();
        let after = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let before = last.map(|last| map.range(..=last));
        map.range::<K, _>(after).chain(before.into_iter().flatten())
    }

    /// The entry of this key was visited.
    pub fn set(&mut self, key: K) {
        self.0 = Some(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_go_on_behind_the_last_one() {
        let mut map = BTreeMap::from([(1, ()), (3, ()), (5, ())]);
        let mut turn = Turn::default();
        let mut visit = |map: &BTreeMap<u32, ()>, nr| {
            let keys: Vec<u32> = turn.entries(map).map(|(key, ())| *key).take(nr).collect();
            keys.iter().for_each(|key| turn.set(*key));
            keys
        };
        assert_eq!(visit(&map, 2), [1, 3]);
        assert_eq!(visit(&map, 2), [5, 1]);
        assert_eq!(visit(&map, 9), [3, 5, 1], "each once");
        assert_eq!(visit(&map, 2), [3, 5]);
        // The last one is gone, and nothing is behind it.
        map.remove(&5);
        assert_eq!(visit(&map, 1), [1]);
        map.clear();
        assert_eq!(visit(&map, 1), [0; 0]);
    }
}
