//! Page-exact results: resident bytes by idle age, and re-accessed bytes by the idle age they had.
//!
//! These tables are the engine's main output: one for each target and snapshot. Every total comes from them.
//! Regions serve the heatmap and DAMON's control files. Google's software-defined far memory decides from the
//! same two histograms (Lagar-Cavilla et al., ASPLOS 2019).

use crate::budget::Method;
use thermo_units::{Bytes, Nanos};

/// Lower edges of the idle age buckets, in seconds. The last bucket has no upper edge. The edges are fixed,
/// so that tables of different recordings, machines and versions can be added.
pub const AGE_EDGES_S: [u64; 15] = [
    0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400,
];

/// Number of age buckets.
pub const NR_AGES: usize = AGE_EDGES_S.len();

/// The window of the working set by which rates of refaults are judged. The far-memory paper takes 2 minutes,
/// its minimum idle age. Here ages begin at seconds and a recording may be short.
pub const WORKING_SET_WINDOW: Nanos = Nanos::secs(60);

/// The bucket of the idle age `age`.
#[must_use]
pub fn age_bucket(age: Nanos) -> usize {
    let seconds = age.0 / Nanos::secs(1).0;
    AGE_EDGES_S.partition_point(|edge| *edge <= seconds) - 1
}

/// Backing of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Backing {
    /// Anonymous memory.
    #[default]
    Anon,
    /// File-backed memory.
    File,
    /// Shared memory: tmpfs, SysV, shared anonymous mappings.
    Shmem,
}

/// Kind of a page: its backing and whether it is mapped as a huge page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageKind {
    /// Backing of the mapping.
    pub backing: Backing,
    /// True if one page-table entry maps 2 MiB or more.
    pub huge: bool,
}

/// Number of page kinds.
pub const NR_KINDS: usize = 6;

impl PageKind {
    /// All kinds, in the order of the tables.
    pub const ALL: [Self; NR_KINDS] = [
        Self::new(Backing::Anon, false),
        Self::new(Backing::Anon, true),
        Self::new(Backing::File, false),
        Self::new(Backing::File, true),
        Self::new(Backing::Shmem, false),
        Self::new(Backing::Shmem, true),
    ];

    /// The kind of pages with this backing, mapped as huge pages or not.
    #[must_use]
    pub const fn new(backing: Backing, huge: bool) -> Self {
        Self { backing, huge }
    }

    /// Index in tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.backing as usize * 2 + self.huge as usize
    }

    /// Name in recordings, JSON and CSV.
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

/// Reason why the idle age of resident bytes is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnknownReason {
    /// Not scanned yet.
    NotScanned,
    /// The first scan found the accessed bit set, which may be years old. The second scan decides.
    FirstScan,
    /// The accessed bit cannot be cleared or is not meaningful: shared or locked pages, memory of a virtual
    /// machine.
    Uncleared,
    /// Pages of hugetlbfs, whose accessed bit cannot be cleared. They are always in memory, but the kernel
    /// counts them in no resident set.
    Hugetlb,
    /// The recording of another program does not say for how long the memory was idle.
    NotRecorded,
}

/// Number of reasons.
pub const NR_REASONS: usize = 5;

impl UnknownReason {
    /// All reasons, in the order of the tables.
    pub const ALL: [Self; NR_REASONS] = [
        Self::NotScanned,
        Self::FirstScan,
        Self::Uncleared,
        Self::Hugetlb,
        Self::NotRecorded,
    ];

    /// Index in tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Name in recordings, JSON and CSV.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotScanned => "not_scanned",
            Self::FirstScan => "first_scan",
            Self::Uncleared => "uncleared",
            Self::Hugetlb => "hugetlb",
            Self::NotRecorded => "not_recorded",
        }
    }

    /// Text for reports.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotScanned => "not scanned yet",
            Self::FirstScan => "accessed before the first scan, not scanned again yet",
            Self::Uncleared => "shared, locked, or used by a virtual machine",
            Self::Hugetlb => "hugetlb pages, which are never paged out",
            Self::NotRecorded => "idle, but the recording does not say for how long",
        }
    }
}

/// Page-exact results of one snapshot, for one target or summed over several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessTables {
    /// Monitoring method. With sampling, the tables are derived from regions and are as uncertain as the
    /// regions.
    pub method: Method,
    /// Resident bytes by kind ([`PageKind::index`]) and idle age ([`age_bucket`]). The first bucket includes
    /// all pages that the last scan found accessed, even if the pass was longer than the bucket.
    pub idle: [[Bytes; NR_AGES]; NR_KINDS],
    /// Resident bytes whose idle age is unknown, by reason ([`UnknownReason::index`]).
    pub unknown: [Bytes; NR_REASONS],
    /// Bytes found accessed since the previous snapshot after at least one scan found them idle, by idle age.
    pub reaccessed: [Bytes; NR_AGES],
    /// Bytes of the kernel's resident total that are in no other figure, because the target maps the same
    /// pages at lower addresses as well.
    pub aliased: Bytes,
    /// Bytes that scans counted beyond the kernel's resident total: most have left memory since their scan.
    /// They are in no other figure.
    pub surplus: Bytes,
    /// Length of the last scan pass: the time between two scans of a page, and the resolution of every age.
    /// Zero before the first pass is complete. With sampling: the aggregation interval.
    pub pass: Nanos,
    /// Number of complete passes.
    pub nr_passes: u64,
    /// Start of the last complete pass: no data in the tables is older.
    pub as_of: Nanos,
}

impl AccessTables {
    /// Empty tables.
    #[must_use]
    pub const fn new(method: Method) -> Self {
        Self {
            method,
            idle: [[Bytes::ZERO; NR_AGES]; NR_KINDS],
            unknown: [Bytes::ZERO; NR_REASONS],
            reaccessed: [Bytes::ZERO; NR_AGES],
            aliased: Bytes::ZERO,
            surplus: Bytes::ZERO,
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
    pub fn known(&self) -> Bytes {
        self.idle.iter().flatten().copied().sum()
    }

    /// Bytes whose idle age is unknown, for any reason.
    #[must_use]
    pub fn unknown(&self) -> Bytes {
        self.unknown.iter().copied().sum()
    }

    /// Bytes that were idle for at least the lower edge of the bucket `age`.
    #[must_use]
    pub fn idle_from(&self, age: usize) -> Bytes {
        self.ages().iter().skip(age).copied().sum()
    }

    /// Bytes accessed again since the previous snapshot, after they were idle for at least the lower edge of
    /// the bucket `age`.
    #[must_use]
    pub fn reaccessed_from(&self, age: usize) -> Bytes {
        self.reaccessed.iter().skip(age).copied().sum()
    }

    /// Bytes accessed within the last [`WORKING_SET_WINDOW`].
    #[must_use]
    pub fn working_set(&self) -> Bytes {
        self.known() - self.idle_from(age_bucket(WORKING_SET_WINDOW))
    }

    /// All resident bytes: the sum of the tables.
    #[must_use]
    pub fn resident(&self) -> Bytes {
        self.known() + self.unknown()
    }

    /// Adjusts the tables to the kernel's `resident` total, hugetlb pages included. Missing bytes count as
    /// not scanned. Surplus bytes count as [`Self::surplus`]: most left memory after their scan. The tables
    /// do not know which they are, so all cells shrink in proportion.
    pub fn fit_to(&mut self, resident: Bytes) {
        let sum = self.resident();
        // The regions of sampling hold memory that is not resident: that says nothing.
        if self.method == Method::Scan {
            self.surplus = sum.saturating_sub(resident);
        }
        if sum <= resident {
            self.unknown[UnknownReason::NotScanned.index()] += resident - sum;
            return;
        }
        let scale = |bytes: &mut Bytes| {
            let scaled = u128::from(bytes.0) * u128::from(resident.0) / u128::from(sum.0);
            bytes.0 = u64::try_from(scaled).unwrap_or(bytes.0);
        };
        self.idle.iter_mut().flatten().for_each(scale);
        self.unknown.iter_mut().for_each(scale);
        // The few bytes lost by rounding go to the largest cell.
        let rounding_loss = resident - self.resident();
        let cells = self.idle.iter_mut().flatten().chain(&mut self.unknown);
        if let Some(largest) = cells.max_by_key(|bytes| **bytes) {
            *largest += rounding_loss;
        }
    }

    /// Names the reason for the pages that belong to hugetlbfs, `hugetlb` bytes of the target: those that a
    /// scan found and could not clear, and after a pass those of 1 GiB, which no scan reads. Call after
    /// [`Self::fit_to`].
    pub fn name_hugetlb(&mut self, hugetlb: Bytes) {
        let mut left = hugetlb;
        let not_scanned = (self.nr_passes > 0).then_some(UnknownReason::NotScanned);
        for reason in [UnknownReason::Uncleared].into_iter().chain(not_scanned) {
            let unnamed = &mut self.unknown[reason.index()];
            let named = left.min(*unnamed);
            *unnamed -= named;
            left -= named;
        }
        self.unknown[UnknownReason::Hugetlb.index()] += hugetlb - left;
    }

    /// Adds the tables of another target. The sum gets the coarser resolution and the earlier `as_of`.
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
        self.aliased += other.aliased;
        self.surplus += other.surplus;
        self.pass = self.pass.max(other.pass);
        self.nr_passes = self.nr_passes.min(other.nr_passes);
        self.as_of = self.as_of.min(other.as_of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_buckets_begin_at_edges() {
        assert_eq!(age_bucket(Nanos::ZERO), 0);
        assert_eq!(age_bucket(Nanos::millis(999)), 0);
        assert_eq!(age_bucket(Nanos::secs(1)), 1);
        assert_eq!(age_bucket(Nanos::secs(29)), 4);
        assert_eq!(age_bucket(Nanos::secs(30)), 5);
        assert_eq!(age_bucket(Nanos::MAX), NR_AGES - 1);
    }

    #[test]
    fn working_set_and_tails_follow_buckets() {
        let mut tables = AccessTables::new(Method::Scan);
        for age in 0..NR_AGES {
            tables.idle[age % NR_KINDS][age] = Bytes(1 << age);
            tables.reaccessed[age] = Bytes(1 << age);
        }
        tables.unknown[0] = Bytes(1 << 20);
        let minute = age_bucket(WORKING_SET_WINDOW);
        assert_eq!(tables.working_set(), Bytes((1 << minute) - 1));
        assert_eq!(tables.idle_from(minute), Bytes((1 << NR_AGES) - (1 << minute)));
        assert_eq!(tables.reaccessed_from(NR_AGES - 1), Bytes(1 << (NR_AGES - 1)));
        assert_eq!(tables.reaccessed_from(NR_AGES), Bytes::ZERO);
    }

    #[test]
    fn kinds_and_reasons_match_table_order() {
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
        let expected = [
            "not_scanned",
            "first_scan",
            "uncleared",
            "hugetlb",
            "not_recorded",
        ];
        assert_eq!(names, expected);
        let texts = UnknownReason::ALL.map(UnknownReason::text);
        assert!(
            texts[0].contains("not scanned")
                && texts[1].contains("first scan")
                && texts[2].contains("shared")
        );
    }

    #[test]
    fn fit_to_adjusts_sum_to_resident_total() {
        let mut tables = AccessTables::new(Method::Scan);
        tables.idle[0][3] = Bytes(3000);
        tables.unknown[UnknownReason::Uncleared.index()] = Bytes(1000);
        let mut less = tables;
        tables.fit_to(Bytes(10_000));
        assert_eq!(tables.resident(), Bytes(10_000));
        assert_eq!(tables.unknown, [6000, 0, 1000, 0, 0].map(Bytes));
        assert_eq!(tables.surplus, Bytes::ZERO);
        less.fit_to(Bytes(1999));
        assert_eq!((less.resident(), less.surplus), (Bytes(1999), Bytes(2001)));
        assert_eq!((less.idle[0][3], less.unknown[2]), (Bytes(1500), Bytes(499)));
    }

    #[test]
    fn hugetlb_is_named_up_to_what_is_uncleared() {
        let mut tables = AccessTables::new(Method::Scan);
        tables.unknown[UnknownReason::Uncleared.index()] = Bytes(1000);
        tables.name_hugetlb(Bytes(700));
        assert_eq!(tables.unknown, [0, 0, 300, 700, 0].map(Bytes));
        tables.unknown[UnknownReason::NotScanned.index()] = Bytes(5000);
        tables.name_hugetlb(Bytes(700));
        assert_eq!(tables.unknown, [5000, 0, 0, 1000, 0].map(Bytes));
        // Pages of 1 GiB are never scanned.
        tables.nr_passes = 1;
        tables.name_hugetlb(Bytes(4000));
        assert_eq!(tables.unknown, [1000, 0, 0, 5000, 0].map(Bytes));
    }

    #[test]
    fn add_keeps_coarser_pass_and_earlier_time() {
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
        other.unknown[1] = Bytes(7);
        sum.add(&other);
        sum.add(&other);
        assert_eq!((sum.idle[1][2], sum.reaccessed[4]), (Bytes(10), Bytes(12)));
        assert_eq!(sum.unknown, [0, 14, 0, 0, 0].map(Bytes));
        assert_eq!(
            (sum.method, sum.pass, sum.nr_passes, sum.as_of),
            (Method::Sampling, Nanos::secs(3), 2, Nanos::secs(45))
        );
    }
}
