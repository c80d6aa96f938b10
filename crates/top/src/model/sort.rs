//! The order of targets, and the idle age that they are judged by.

use std::cmp::Ordering;

use thermo_agent::api::{AgeBytes, Target};

/// What targets are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortKey {
    /// Bytes idle for at least the chosen age.
    #[default]
    Idle,
    /// Net saving.
    NetSaving,
    /// Resident bytes.
    Resident,
    /// Refaults.
    Refaults,
    /// Name.
    Name,
}

impl SortKey {
    /// The key on the keyboard that chooses it.
    #[must_use]
    pub const fn from_char(c: char) -> Option<Self> {
        match c {
            'i' => Some(Self::Idle),
            's' => Some(Self::NetSaving),
            'r' => Some(Self::Resident),
            'f' => Some(Self::Refaults),
            'n' => Some(Self::Name),
            _ => None,
        }
    }

    /// As the end of `sorted by`.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Idle => "idle bytes",
            Self::NetSaving => "net saving",
            Self::Resident => "resident bytes",
            Self::Refaults => "refaults",
            Self::Name => "name",
        }
    }

    /// The order of `one` and `other`: largest sizes first, names from A. Equal targets are ordered by name
    /// and policy, so that rows do not jump.
    pub fn compare(self, one: &Target, other: &Target, age_s: u64) -> Ordering {
        let idle = |target: &Target| idle_from(&target.ages, age_s);
        let by_name = || (&one.name, &one.policy).cmp(&(&other.name, &other.policy));
        let order = match self {
            Self::Idle => idle(other).cmp(&idle(one)),
            Self::NetSaving => other.net_saved_bytes.cmp(&one.net_saved_bytes),
            Self::Resident => other.resident_bytes.cmp(&one.resident_bytes),
            Self::Refaults => other.refault_bytes_per_min.cmp(&one.refault_bytes_per_min),
            Self::Name => Ordering::Equal,
        };
        order.then_with(by_name)
    }
}

/// Bytes of `ages` that are idle for at least `age_s` seconds.
#[must_use]
pub fn idle_from(ages: &[AgeBytes], age_s: u64) -> u64 {
    let older = ages.iter().filter(|age| age.min_s >= age_s);
    older.map(|age| age.bytes).fold(0, u64::saturating_add)
}

/// Ages that idle memory may be counted from, in seconds.
const AGES_S: [u64; 7] = [1, 10, 60, 600, 3600, 21_600, 86_400];

/// The idle age from which memory is shown as idle, and the two ages above it that divide the bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleAge(usize);

impl Default for IdleAge {
    /// One minute.
    fn default() -> Self {
        Self(2)
    }
}

impl IdleAge {
    /// The next longer age; the shortest after the longest.
    #[must_use]
    pub const fn next(self) -> Self {
        Self((self.0 + 1) % (AGES_S.len() - 2))
    }

    /// The age in seconds.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        AGES_S[self.0]
    }

    /// The lower ages of the three parts of a bar, in seconds.
    #[must_use]
    pub const fn parts(self) -> [u64; 3] {
        [AGES_S[self.0], AGES_S[self.0 + 1], AGES_S[self.0 + 2]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ages(bytes: [(u64, u64); 3]) -> Vec<AgeBytes> {
        let age = |(min_s, bytes)| AgeBytes {
            min_s,
            max_s: None,
            bytes,
        };
        bytes.into_iter().map(age).collect()
    }

    #[test]
    fn idle_bytes_are_those_from_age_on() {
        let ages = ages([(0, 1), (60, 10), (600, 100)]);
        assert_eq!([0, 60, 120].map(|age| idle_from(&ages, age)), [111, 110, 100]);
    }

    #[test]
    fn idle_age_returns_to_shortest() {
        let mut age = IdleAge::default();
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(age.seconds());
            assert!(age.parts().is_sorted());
            age = age.next();
        }
        assert_eq!((seen, age), (vec![60, 600, 3600, 1, 10], IdleAge::default()));
    }

    #[test]
    fn equal_targets_are_ordered_by_name() {
        let target = |name: &str, saved| Target {
            name: name.to_owned(),
            net_saved_bytes: saved,
            ..Target::default()
        };
        let (a, b, c) = (target("a", 5), target("b", 5), target("c", -5));
        let order = |one, other| SortKey::NetSaving.compare(one, other, 60);
        assert_eq!(
            [order(&b, &a), order(&a, &c)],
            [Ordering::Greater, Ordering::Less]
        );
        assert_eq!(SortKey::Name.compare(&c, &a, 60), Ordering::Greater);
    }
}
