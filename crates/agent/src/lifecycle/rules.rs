//! What an application's description says about reclaiming from it, and the defaults.

use thermo_units::{Bytes, Nanos, Permille};

use super::Profile;

/// How long after one reclaim the next may begin, by what the two take: pages of files only (`some`) or also
/// anonymous ones (`full`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// After `some`, before `some`.
    pub some_some: Nanos,
    /// After `some`, before `full`.
    pub some_full: Nanos,
    /// After `full`, before `some`.
    pub full_some: Nanos,
    /// After `full`, before `full`.
    pub full_full: Nanos,
}

impl Default for Throttle {
    /// Android's `compact_throttle_1` to `_4`.
    fn default() -> Self {
        Self {
            some_some: Nanos::secs(5),
            some_full: Nanos::secs(10),
            full_some: Nanos::millis(500),
            full_full: Nanos::secs(10),
        }
    }
}

impl Throttle {
    /// The interval between a reclaim by `last` and one by `next`.
    #[must_use]
    pub const fn between(&self, last: Profile, next: Profile) -> Nanos {
        match (last.takes_swap(), next.takes_swap()) {
            (false, false) => self.some_some,
            (false, true) => self.some_full,
            (true, false) => self.full_some,
            (true, true) => self.full_full,
        }
    }
}

/// What is done to an application, and when not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// What is reclaimed when it is put away.
    pub profile: Profile,
    /// What is reclaimed when it goes to the background; usually nothing.
    pub background: Option<Profile>,
    /// Whether what it used last time is brought in when it comes back.
    pub prefetch: bool,
    /// Intervals between reclaims.
    pub throttle: Throttle,
    /// With less anonymous memory than this resident, paging it out is not worth the while.
    pub min_anon_rss: Bytes,
    /// When resident memory has changed by less than this since the last reclaim, there is little to be had.
    pub min_change: Bytes,
    /// With less of swap free than this, only pages of files are touched.
    pub swap_low: Permille,
}

impl Default for Rules {
    /// Android's: 12 MB, 8 MB, a fifth of swap.
    fn default() -> Self {
        Self {
            profile: Profile::Full,
            background: None,
            prefetch: false,
            throttle: Throttle::default(),
            min_anon_rss: Bytes::mib(12),
            min_change: Bytes::mib(8),
            swap_low: Permille(200),
        }
    }
}
