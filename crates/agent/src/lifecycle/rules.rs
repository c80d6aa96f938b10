//! The reclaim policy of an application, and its defaults.

use thermo_units::{Bytes, Nanos, Permille};

use super::Profile;

/// Minimum intervals between two reclaims. `full` stands for profiles that need swap (`full`, `anon`), `some`
/// for the others (`some`, `file`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinIntervals {
    /// From `some` to `some`.
    pub some_some: Nanos,
    /// From `some` to `full`.
    pub some_full: Nanos,
    /// From `full` to `some`.
    pub full_some: Nanos,
    /// From `full` to `full`.
    pub full_full: Nanos,
}

impl Default for MinIntervals {
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

impl MinIntervals {
    /// The minimum interval between a reclaim with `last` and one with `next`.
    #[must_use]
    pub const fn between(&self, last: Profile, next: Profile) -> Nanos {
        match (last.needs_swap(), next.needs_swap()) {
            (false, false) => self.some_some,
            (false, true) => self.some_full,
            (true, false) => self.full_some,
            (true, true) => self.full_full,
        }
    }
}

/// The reclaim policy of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Profile for an application that becomes cached.
    pub profile: Profile,
    /// Profile for an application that goes from use to the background; `None` does nothing.
    pub background: Option<Profile>,
    /// Whether to read in the working set when the application returns from the cache.
    pub prefetch: bool,
    /// Minimum intervals between reclaims.
    pub min_intervals: MinIntervals,
    /// Skip paging out if less anonymous memory than this is resident.
    pub min_anon_rss: Bytes,
    /// Skip paging out if resident anonymous memory changed by less than this since the last complete
    /// reclaim.
    pub min_change: Bytes,
    /// If a smaller share of swap than this is free, reclaim only file pages.
    pub swap_low: Permille,
}

impl Default for Rules {
    /// Android's defaults.
    fn default() -> Self {
        Self {
            profile: Profile::Full,
            background: None,
            prefetch: false,
            min_intervals: MinIntervals::default(),
            min_anon_rss: Bytes::mib(12),
            min_change: Bytes::mib(8),
            swap_low: Permille(200),
        }
    }
}
