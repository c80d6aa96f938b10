//! Page-exact results: how many resident bytes have been idle for how long, and how many were accessed again after
//! how long.
//!
//! These tables are the engine's first output, one for each target in each snapshot. Every total comes from them;
//! regions serve the heatmap and DAMON's control files. The idle ages and the re-accesses are the two histograms
//! from which Google's software-defined far memory decides (Lagar-Cavilla et al., ASPLOS 2019), here for each page.

use crate::budget::Method;
use thermo_units::{Bytes, Nanos};

/// Where the buckets of idle ages begin, in seconds. The last bucket has no end. Fixed, so that tables of different
/// recordings, machines and versions can be added up.
pub const AGE_EDGES_S: [u64; 15] = [
    0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400,
];

/// Number of age buckets.
pub const NR_AGES: usize = AGE_EDGES_S.len();

/// The bucket of something that has been idle for `age`.
#[must_use]
pub fn age_bucket(age: Nanos) -> usize {
    let seconds = age.0 / Nanos::secs(1).0;
    AGE_EDGES_S.partition_point(|edge| *edge <= seconds) - 1
}

/// What a mapping's pages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Backing {
    /// Anonymous memory.
    #[default]
    Anon,
    /// A file.
    File,
    /// Shared memory: tmpfs, SysV, shared anonymous mappings.
    Shmem,
}

/// The kind of a page: its backing, and whether one entry of the page tables maps 2 MiB or more of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageKind {
    /// What backs the mapping.
    pub backing: Backing,
    /// Whether it is mapped as a huge page.
    pub huge: bool,
}

/// Number of kinds.
pub const NR_KINDS: usize = 6;

impl PageKind {
    /// All kinds, in the order in which tables hold them.
    pub const ALL: [Self; NR_KINDS] = [
        Self::new(Backing::Anon, false),
        Self::new(Backing::Anon, true),
        Self::new(Backing::File, false),
        Self::new(Backing::File, true),
        Self::new(Backing::Shmem, false),
        Self::new(Backing::Shmem, true),
    ];

    /// A kind.
    #[must_use]
    pub const fn new(backing: Backing, huge: bool) -> Self {
        Self { backing, huge }
    }

    /// Its place in tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.backing as usize * 2 + self.huge as usize
    }

    /// Its name in recordings, JSON and CSV.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.backing, self.huge) {
            (Backing::Anon, false) => "anon",
            (Backing::Anon, true) => "anon_huge",
            (Backing::File, false) => "file",
            (Backing::File, true) => "file_huge",
            (Backing::Shmem, false) => "shmem",
            (Backing::Shmem, true) => "shmem_huge",
        }
    }
}

/// Why the idle age of resident bytes is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnknownReason {
    /// No scan has come by yet.
    NotScanned,
    /// The first scan found the accessed bit set, which may have been so for years; the second scan tells.
    FirstScan,
    /// The accessed bit cannot be cleared or does not tell: shared or locked pages, memory of a virtual machine.
    Uncleared,
}

/// Number of reasons.
pub const NR_REASONS: usize = 3;

impl UnknownReason {
    /// All reasons, in the order in which tables hold them.
    pub const ALL: [Self; NR_REASONS] = [Self::NotScanned, Self::FirstScan, Self::Uncleared];

    /// Its place in tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in recordings, JSON and CSV.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotScanned => "not_scanned",
            Self::FirstScan => "first_scan",
            Self::Uncleared => "uncleared",
        }
    }

    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotScanned => "not scanned yet",
            Self::FirstScan => "accessed before the first scan, not scanned again yet",
            Self::Uncleared => "shared, locked, or used by a virtual machine",
        }
    }
}

/// The page-exact results for one target (or, added up, for several) in one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessTables {
    /// How accesses were found. With sampling, the tables are derived from regions and as uncertain as those.
    pub method: Method,
    /// Resident bytes by kind ([`PageKind::index`]) and idle age ([`age_bucket`]). The first bucket holds what the last
    /// scan found accessed, however long the pass.
    pub idle: [[Bytes; NR_AGES]; NR_KINDS],
    /// Resident bytes whose idle age is not known, by reason ([`UnknownReason::index`]).
    pub unknown: [Bytes; NR_REASONS],
    /// Bytes found accessed since the snapshot before that had been idle since at least one scan, by how long.
    pub reaccessed: [Bytes; NR_AGES],
    /// Length of the last scan pass: what lies between two scans of a page, the resolution of every age. Zero before the
    /// first pass is complete. With sampling: the aggregation interval.
    pub pass: Nanos,
    /// Complete passes so far.
    pub nr_passes: u64,
    /// Nothing in the tables is older than this moment: when the last complete pass began.
    pub as_of: Nanos,
}

impl AccessTables {
    /// Tables of nothing.
    #[must_use]
    pub const fn new(method: Method) -> Self {
        Self {
            method,
            idle: [[Bytes::ZERO; NR_AGES]; NR_KINDS],
            unknown: [Bytes::ZERO; NR_REASONS],
            reaccessed: [Bytes::ZERO; NR_AGES],
            pass: Nanos::ZERO,
            nr_passes: 0,
            as_of: Nanos::ZERO,
        }
    }

    /// Resident bytes by idle age, over all kinds.
    #[must_use]
    pub fn ages(&self) -> [Bytes; NR_AGES] {
        std::array::from_fn(|age| self.idle.iter().map(|ages| ages[age]).sum())
    }

    /// Bytes whose idle age is known.
    #[must_use]
    pub fn judged(&self) -> Bytes {
        self.idle.iter().flatten().copied().sum()
    }

    /// Bytes whose idle age is not known, for any reason.
    #[must_use]
    pub fn unknown(&self) -> Bytes {
        self.unknown.iter().copied().sum()
    }

    /// All resident bytes: the sum of the tables.
    #[must_use]
    pub fn resident(&self) -> Bytes {
        self.judged() + self.unknown()
    }

    /// Makes the sum what the kernel says is `resident`. What is missing was not scanned yet. What is too much has left
    /// memory since it was scanned, nobody knows which of it: it goes in proportion.
    pub fn fit_to(&mut self, resident: Bytes) {
        let sum = self.resident();
        if sum <= resident {
            self.unknown[UnknownReason::NotScanned.index()] += resident - sum;
            return;
        }
        let part = |bytes: &mut Bytes| {
            let scaled = u128::from(bytes.0) * u128::from(resident.0) / u128::from(sum.0);
            bytes.0 = u64::try_from(scaled).unwrap_or(bytes.0);
        };
        self.idle.iter_mut().flatten().for_each(part);
        self.unknown.iter_mut().for_each(part);
        // What rounding took: some bytes, which go where they matter least.
        let rest = resident - self.resident();
        let cells = self.idle.iter_mut().flatten().chain(&mut self.unknown);
        if let Some(largest) = cells.max_by_key(|bytes| **bytes) {
            *largest += rest;
        }
    }

    /// Adds the tables of another target. The coarser resolution and the older moment hold for the sum.
    pub fn add(&mut self, other: &Self) {
        if other.method == Method::Sampling {
            self.method = Method::Sampling;
        }
        let cells = self.idle.iter_mut().flatten().zip(other.idle.iter().flatten());
        cells.for_each(|(sum, bytes)| *sum += *bytes);
        let reaccessed = self.reaccessed.iter_mut().zip(&other.reaccessed);
        reaccessed.for_each(|(sum, bytes)| *sum += *bytes);
        let unknown = self.unknown.iter_mut().zip(&other.unknown);
        unknown.for_each(|(sum, bytes)| *sum += *bytes);
        self.pass = self.pass.max(other.pass);
        self.nr_passes = self.nr_passes.min(other.nr_passes);
        self.as_of = self.as_of.min(other.as_of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_begin_at_their_edges() {
        assert_eq!(age_bucket(Nanos::ZERO), 0);
        assert_eq!(age_bucket(Nanos::millis(999)), 0);
        assert_eq!(age_bucket(Nanos::secs(1)), 1);
        assert_eq!(age_bucket(Nanos::secs(29)), 4);
        assert_eq!(age_bucket(Nanos::secs(30)), 5);
        assert_eq!(age_bucket(Nanos::MAX), NR_AGES - 1);
    }

    #[test]
    fn kinds_and_reasons_stand_at_their_places() {
        for (nth, kind) in PageKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), nth, "{}", kind.name());
        }
        for (nth, reason) in UnknownReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), nth, "{}", reason.name());
        }
        let kinds = PageKind::ALL.map(PageKind::name);
        let expected = ["anon", "anon_huge", "file", "file_huge", "shmem", "shmem_huge"];
        assert_eq!(kinds, expected);
        let names = UnknownReason::ALL.map(UnknownReason::name);
        assert_eq!(names, ["not_scanned", "first_scan", "uncleared"]);
        let texts = UnknownReason::ALL.map(UnknownReason::text);
        assert!(
            texts[0].contains("not scanned")
                && texts[1].contains("first scan")
                && texts[2].contains("shared")
        );
    }

    #[test]
    fn the_sum_is_what_the_kernel_says() {
        let mut tables = AccessTables::new(Method::Scan);
        tables.idle[0][3] = Bytes(3000);
        tables.unknown[UnknownReason::Uncleared.index()] = Bytes(1000);
        let mut less = tables;
        tables.fit_to(Bytes(10_000));
        assert_eq!(tables.resident(), Bytes(10_000));
        assert_eq!(tables.unknown, [Bytes(6000), Bytes(0), Bytes(1000)]);
        less.fit_to(Bytes(1999));
        assert_eq!(less.resident(), Bytes(1999));
        assert_eq!((less.idle[0][3], less.unknown[2]), (Bytes(1500), Bytes(499)));
    }

    #[test]
    fn sums_are_as_coarse_and_as_old_as_their_worst_part() {
        let mut sum = AccessTables {
            pass: Nanos::secs(1),
            nr_passes: 7,
            as_of: Nanos::secs(50),
            ..AccessTables::new(Method::Scan)
        };
        let mut other = AccessTables {
            pass: Nanos::secs(3),
            nr_passes: 2,
            as_of: Nanos::secs(45),
            ..AccessTables::new(Method::Sampling)
        };
        other.idle[1][2] = Bytes(5);
        other.reaccessed[4] = Bytes(6);
        sum.add(&other);
        sum.add(&other);
        assert_eq!((sum.idle[1][2], sum.reaccessed[4]), (Bytes(10), Bytes(12)));
        assert_eq!(
            (sum.method, sum.pass, sum.nr_passes, sum.as_of),
            (Method::Sampling, Nanos::secs(3), 2, Nanos::secs(45))
        );
    }
}
