//! A cell: what `thermo advise` predicted for an age, beside what was measured.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thermo_units::PAGE_SIZE;

use super::act::Measured;

/// The aims: net saving within this share of resident memory, refaults within this factor, compressed size
/// within this share.
pub const NET_AIM: f64 = 0.15;
/// See [`NET_AIM`].
pub const REFAULT_AIM: f64 = 1.5;
/// See [`NET_AIM`].
pub const COMPRESSED_AIM: f64 = 0.10;

/// Rates below a page a second are equal: the factor between two small rates says nothing.
const LEAST_RATE: f64 = 60.0 * PAGE_SIZE as f64;
/// Compressed sizes below this share of resident memory are equal: overheads of zram decide.
const LEAST_COMPRESSED: f64 = 0.01;

/// What was predicted, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// Net saving.
    pub net_bytes: f64,
    /// Memory in zram.
    pub zram_bytes: f64,
    /// Memory that comes back in a minute.
    pub refault_bytes_per_min: f64,
}

/// A run with one age.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The workload.
    pub workload: String,
    /// Number of the round, from 1.
    pub round: usize,
    /// The minimum age in seconds.
    pub age_s: u64,
    /// What was measured.
    pub measured: Measured,
    /// What was predicted, or why nothing was.
    pub predicted: Result<Predicted, String>,
}

/// Differences between prediction and measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Difference {
    /// Predicted minus measured net saving, as a share of resident memory.
    pub(super) net: f64,
    /// Predicted refaults by measured ones.
    pub(super) refaults: f64,
    /// Predicted minus measured memory in zram, as a share of the latter.
    pub(super) compressed: f64,
}

impl Predicted {
    /// The prediction for `age_s` in the JSON of `thermo advise`.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn of(advice: &Value, age_s: u64) -> Result<Self, String> {
        let rows = advice["table"].as_array().into_iter().flatten();
        let row = rows.into_iter().find(|row| row["min_age_s"] == age_s);
        let row = row.ok_or("the advice has no such age")?;
        let value = |name: &str| row[name]["mid"].as_f64();
        let predicted = || {
            Some(Self {
                net_bytes: value("net_saved_bytes")?,
                zram_bytes: value("compressed_bytes")?,
                refault_bytes_per_min: value("refault_bytes_per_min")?,
            })
        };
        predicted().ok_or_else(|| {
            row["why"]
                .as_str()
                .unwrap_or("the advice has no figures")
                .to_owned()
        })
    }
}

impl Cell {
    /// The differences; `None` if nothing was predicted.
    pub(super) fn difference(&self) -> Option<Difference> {
        let (told, was) = (self.predicted.as_ref().ok()?, &self.measured);
        let resident = was.resident_bytes.max(PAGE_SIZE as f64);
        let least = LEAST_COMPRESSED * resident;
        Some(Difference {
            net: (told.net_bytes - was.net_bytes()) / resident,
            refaults: told.refault_bytes_per_min.max(LEAST_RATE) / was.refault_bytes_per_min.max(LEAST_RATE),
            compressed: told.zram_bytes.max(least) / was.zram_bytes.max(least) - 1.0,
        })
    }
}
