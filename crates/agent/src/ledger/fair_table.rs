//! A bounded table of targets by policy. Names of targets come from users, so a policy whose targets are many
//! or short-lived must not take the rows of other policies, nor keep them for ever.
//!
//! When the table is full, the policy with the most rows gives one up: the row that changed the longest time
//! ago becomes part of the policy's row [`OTHER`]. A policy that is itself the largest gives up only rows of
//! targets that have ended; if all of its targets live, the new one shares the row [`OTHER`].

use std::collections::BTreeMap;

/// Name of the row that further targets share.
pub const OTHER: &str = "(other)";
/// Ticks without a change after which a target has ended: the rows of living targets change with each.
pub(super) const ENDED_AFTER: u64 = 3;

/// What a row holds.
pub trait Value: Default {
    /// Adds the sums of another target.
    fn fold(&mut self, other: Self);
}

#[derive(Debug, Clone)]
struct Entry<V> {
    value: V,
    /// The tick of the last change.
    changed: u64,
}

/// The table.
#[derive(Debug, Clone)]
pub struct FairTable<V> {
    policies: BTreeMap<String, BTreeMap<String, Entry<V>>>,
    max_rows: usize,
    tick: u64,
    /// Policies that had no row of an ended target at this tick: they are not searched again before the next.
    all_live: BTreeMap<String, u64>,
    /// Whether a row was given up, or shared.
    is_full: bool,
}

impl<V: Value> FairTable<V> {
    /// An empty table of at most `max_rows` rows, besides one row [`OTHER`] for each policy.
    #[must_use]
    pub const fn new(max_rows: usize) -> Self {
        Self {
            policies: BTreeMap::new(),
            max_rows,
            tick: 0,
            all_live: BTreeMap::new(),
            is_full: false,
        }
    }

    /// A second or so has passed, in which all living targets were looked at.
    pub const fn tick(&mut self) {
        self.tick += 1;
    }

    /// Whether targets share a row, now or before, because there were too many.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// The row of a target, to change it, with its name: [`OTHER`] if the table has no room. Also returns the
    /// policy and target that gave up their row for it.
    pub fn change(&mut self, policy: &str, target: &str) -> Changed<'_, V> {
        let mut folded = None;
        let mut target = target;
        let is_new = self
            .policies
            .get(policy)
            .is_none_or(|rows| !rows.contains_key(target));
        if is_new && target != OTHER && self.nr_rows() >= self.max_rows {
            self.is_full = true;
            folded = self.make_room(policy);
            if folded.is_none() {
                target = OTHER;
            }
        }
        let tick = self.tick;
        let rows = self.policies.entry(policy.to_owned()).or_default();
        let entry = rows.entry(target.to_owned()).or_insert_with(|| Entry {
            value: V::default(),
            changed: tick,
        });
        entry.changed = tick;
        Changed {
            name: target.to_owned(),
            value: &mut entry.value,
            folded,
        }
    }

    /// The value of a target.
    #[must_use]
    pub fn get(&self, policy: &str, target: &str) -> Option<&V> {
        Some(&self.policies.get(policy)?.get(target)?.value)
    }

    /// All rows: policy, target and value.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &str, &V)> {
        self.policies.iter().flat_map(|(policy, rows)| {
            rows.iter()
                .map(move |(target, entry)| (policy.as_str(), target.as_str(), &entry.value))
        })
    }

    /// The values of a policy, to change them.
    pub fn values_of(&mut self, policy: &str) -> impl Iterator<Item = &mut V> {
        let rows = self.policies.get_mut(policy).into_iter();
        rows.flat_map(|rows| rows.values_mut().map(|entry| &mut entry.value))
    }

    /// Takes all rows out: policy, target and value.
    pub fn take(&mut self) -> Vec<(String, String, V)> {
        let mut all = Vec::new();
        for (policy, rows) in std::mem::take(&mut self.policies) {
            for (target, entry) in rows {
                all.push((policy.clone(), target, entry.value));
            }
        }
        all
    }

    fn nr_rows(&self) -> usize {
        self.policies.values().map(|rows| own_rows(rows)).sum()
    }

    /// Makes room for a target of `policy`. Returns whose row was folded; `None` if `policy` has to share.
    fn make_room(&mut self, policy: &str) -> Option<(String, String)> {
        let count = |name: &str| self.policies.get(name).map_or(0, |rows| own_rows(rows));
        let largest = self.policies.keys().max_by_key(|name| count(name))?.clone();
        // Among equals, a policy takes nothing from another.
        let victim = match count(policy) >= count(&largest).saturating_sub(1) {
            true => policy.to_owned(),
            false => largest,
        };
        let is_own = victim == policy;
        if is_own && self.all_live.get(policy) == Some(&self.tick) {
            return None;
        }
        let tick = self.tick;
        let rows = self.policies.get_mut(&victim)?;
        let oldest = rows
            .iter()
            .filter(|(target, _)| *target != OTHER)
            .filter(|(_, entry)| !is_own || tick.saturating_sub(entry.changed) >= ENDED_AFTER)
            .min_by_key(|(_, entry)| entry.changed);
        let Some(oldest) = oldest.map(|(target, _)| target.clone()) else {
            self.all_live.insert(victim, tick);
            return None;
        };
        let folded = rows.remove(&oldest)?;
        let other = rows.entry(OTHER.to_owned()).or_insert_with(|| Entry {
            value: V::default(),
            changed: tick,
        });
        other.value.fold(folded.value);
        Some((victim, oldest))
    }
}

/// A row that is being changed.
pub struct Changed<'a, V> {
    /// Name of the row: the target, or [`OTHER`].
    pub name: String,
    /// Its value.
    pub value: &'a mut V,
    /// Policy and target whose row became part of [`OTHER`] for it.
    pub folded: Option<(String, String)>,
}

fn own_rows<V>(rows: &BTreeMap<String, Entry<V>>) -> usize {
    rows.len() - usize::from(rows.contains_key(OTHER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Sum(u64);

    impl Value for Sum {
        fn fold(&mut self, other: Self) {
            self.0 += other.0;
        }
    }

    fn add(table: &mut FairTable<Sum>, policy: &str, target: &str) -> String {
        let changed = table.change(policy, target);
        changed.value.0 += 1;
        changed.name
    }

    #[test]
    fn living_targets_keep_their_rows_and_further_ones_share_one() {
        let mut table = FairTable::new(4);
        for _ in 0..10 {
            table.tick();
            for target in 0..6 {
                let expected = if target < 4 {
                    target.to_string()
                } else {
                    OTHER.to_owned()
                };
                assert_eq!(add(&mut table, "p", &target.to_string()), expected);
            }
        }
        assert!(table.is_full());
        assert_eq!(table.get("p", OTHER).map(|sum| sum.0), Some(20));
    }

    #[test]
    fn every_policy_gets_its_part_of_a_full_table() {
        let mut table = FairTable::new(4);
        for _ in 0..10 {
            table.tick();
            (0..6).for_each(|target| drop(add(&mut table, "noisy", &target.to_string())));
            for target in ["a", "b"] {
                assert_eq!(add(&mut table, "quiet", target), target);
            }
        }
        let noisy = table.rows().filter(|(policy, ..)| *policy == "noisy").count();
        assert_eq!((noisy, table.nr_rows()), (3, 4));
        assert_eq!(table.rows().map(|(.., sum)| sum.0).sum::<u64>(), 80);
    }

    #[test]
    fn rows_of_ended_targets_become_free() {
        let mut table = FairTable::new(2);
        (0..2).for_each(|target| drop(add(&mut table, "p", &target.to_string())));
        assert_eq!(add(&mut table, "p", "early"), OTHER);
        (0..ENDED_AFTER).for_each(|_| table.tick());
        add(&mut table, "p", "1");
        let changed = table.change("p", "late");
        assert_eq!(changed.name, "late");
        assert_eq!(changed.folded, Some(("p".to_owned(), "0".to_owned())));
    }
}
