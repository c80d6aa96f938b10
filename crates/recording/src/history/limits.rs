//! How much of what was watched is kept, and for how long.

use thermo_units::{Bytes, Nanos};

/// What a [`SegmentWriter`](super::SegmentWriter) writes of the events it gets.
///
/// The defaults keep 24 hours of 50 targets below 150 MB: docs/reference/formats.md has the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteLimits {
    /// Time between two snapshots. Access tables are written with each: re-accesses are summed over the
    /// snapshots between.
    pub every: Nanos,
    /// Time between two snapshots with regions, for targets with access tables. Regions serve heatmaps only.
    pub regions_every: Nanos,
    /// Time between two records of a target's mappings.
    pub mappings_every: Nanos,
    /// Most regions of a target in a snapshot.
    pub max_regions: usize,
    /// A new segment begins after so much time.
    pub segment_age: Nanos,
    /// A new segment begins when the file has so many bytes.
    pub segment_bytes: Bytes,
    /// Age of the oldest record of a batch when the batch is written: what a SIGKILL may lose.
    pub batch_age: Nanos,
    /// Time until the next attempt after the directory could not be written.
    pub retry: Nanos,
}

impl Default for WriteLimits {
    fn default() -> Self {
        Self {
            every: Nanos::secs(10),
            regions_every: Nanos::secs(60),
            mappings_every: Nanos::secs(600),
            max_regions: 200,
            segment_age: Nanos::secs(3600),
            segment_bytes: Bytes::mib(32),
            batch_age: Nanos::secs(30),
            retry: Nanos::secs(60),
        }
    }
}

/// Which segments [`prune`](super::prune) keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Segments that ended before this age are removed.
    pub max_age: Nanos,
    /// The oldest segments of all policies are removed until the rest has at most so many bytes.
    pub max_bytes: Bytes,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            max_age: Nanos::secs(7 * 86_400),
            max_bytes: Bytes::gib(1),
        }
    }
}

/// The time on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`: the clock of events.
    pub monotonic: Nanos,
    /// Time since 1970: the clock of the history.
    pub unix: Nanos,
}

impl Clocks {
    /// Wall-clock time minus monotonic time, in nanoseconds.
    #[must_use]
    pub fn offset_ns(self) -> i64 {
        let offset = i128::from(self.unix.0) - i128::from(self.monotonic.0);
        i64::try_from(offset).unwrap_or(0)
    }
}
