//! The definition of hot, warm, cold and unknown memory, for all reports, summaries and progress lines.
//!
//! They are ranges of idle ages of resident pages, from the access tables:
//! * **hot**: accessed in the last scan pass, or within the last second if a pass is shorter.
//! * **warm**: idle for less than [`COLD_FROM_S`].
//! * **cold**: idle for [`COLD_FROM_S`] or longer.
//! * **unknown**: the idle age is not known. Unknown memory never counts as cold.
//!
//! The four sizes sum to the resident bytes.

use serde::Serialize;
use thermo_engine::access_tables::{AGE_EDGES_S, AccessTables};
use thermo_recording::model::Region;
use thermo_units::Bytes;

/// Minimum idle age of cold memory, in seconds. Only reports use this convention; schemes name their own
/// ages.
pub const COLD_FROM_S: u64 = 10;

/// The access rate of `region`, 0 to 1.
#[must_use]
pub fn rate(region: &Region, max_nr_accesses: u32) -> f64 {
    (f64::from(region.nr_accesses) / f64::from(max_nr_accesses.max(1))).min(1.0)
}

/// A size and its share of resident memory.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Share {
    /// Bytes.
    pub bytes: u64,
    /// Share of the resident bytes, 0 to 1.
    pub share: f64,
}

/// Resident memory by heat.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct HeatSizes {
    /// Accessed in the last scan pass.
    pub hot: Share,
    /// Idle for less than [`COLD_FROM_S`].
    pub warm: Share,
    /// Idle for [`COLD_FROM_S`] or longer.
    pub cold: Share,
    /// Idle age not known.
    pub unknown: Share,
}

impl From<&AccessTables> for HeatSizes {
    fn from(tables: &AccessTables) -> Self {
        let ages = tables.ages();
        let cold_from = AGE_EDGES_S.partition_point(|edge| *edge < COLD_FROM_S);
        let resident = tables.resident();
        let share = |bytes: Bytes| Share {
            bytes: bytes.0,
            share: bytes.0 as f64 / resident.0.max(1) as f64,
        };
        Self {
            hot: share(ages[0]),
            warm: share(ages[1..cold_from].iter().copied().sum()),
            cold: share(ages[cold_from..].iter().copied().sum()),
            unknown: share(tables.unknown()),
        }
    }
}

impl HeatSizes {
    /// Sum of the four sizes: the resident bytes.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.hot.bytes + self.warm.bytes + self.cold.bytes + self.unknown.bytes
    }
}

#[cfg(test)]
mod tests {
    use thermo_engine::budget::Method;

    use super::*;

    #[test]
    fn heat_sizes_sum_to_resident() {
        let mut tables = AccessTables::new(Method::Scan);
        for (age, bytes) in [(0, 100), (1, 1), (3, 10), (4, 1000), (14, 2000)] {
            tables.idle[age % 6][age] = Bytes::mib(bytes);
        }
        tables.unknown[1] = Bytes::mib(5);
        let sizes = HeatSizes::from(&tables);
        let parts = [sizes.hot, sizes.warm, sizes.cold, sizes.unknown];
        assert_eq!(parts.map(|share| share.bytes >> 20), [100, 11, 3000, 5]);
        assert_eq!(sizes.total(), tables.resident().0);
    }
}
