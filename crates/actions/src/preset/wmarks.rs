//! Parameters that modules have in common.

use thermo_engine::scheme::{CoreFilter, CoreFilterKind, WatermarkMetric, Watermarks};
use thermo_units::{Addr, AddrRange, Nanos, Permille};

use super::error::PresetError;

/// The marks on free memory that modules have in common (`wmarks_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wmarks {
    /// How often free memory is compared with the marks, while resting.
    pub interval: Nanos,
    /// Rest above this much free memory.
    pub high: Permille,
    /// Begin at or below this much.
    pub mid: Permille,
    /// Rest below this much: the kernel's own reclaim is at work.
    pub low: Permille,
}

impl Wmarks {
    pub(super) const fn watermarks(self) -> Watermarks {
        Watermarks {
            metric: WatermarkMetric::FreeMemRate,
            interval: self.interval,
            high: self.high,
            mid: self.mid,
            low: self.low,
        }
    }

    pub(super) fn check(self) -> Result<(), PresetError> {
        at_most_all("wmarks_high", self.high)?;
        if self.high < self.mid || self.mid < self.low {
            return Err(PresetError::Wmarks {
                high: self.high.0,
                mid: self.mid.0,
                low: self.low.0,
            });
        }
        if self.interval == Nanos::ZERO {
            return Err(PresetError::WmarksInterval);
        }
        Ok(())
    }
}

/// What leaves alone all that lies outside of the region that modules are given as `monitor_region_start` and
/// `monitor_region_end`; nothing where both are 0, which means all memory.
///
/// # Errors
/// The region is nothing.
pub fn monitor_region(start: u64, end: u64) -> Result<Option<CoreFilter>, PresetError> {
    if (start, end) == (0, 0) {
        return Ok(None);
    }
    if end <= start {
        return Err(PresetError::EmptyRegion { start, end });
    }
    let (start, end) = (Addr(start), Addr(end));
    Ok(Some(CoreFilter {
        kind: CoreFilterKind::Addr(AddrRange { start, end }),
        matching: false,
        allow: false,
    }))
}

pub(super) const fn at_most_all(name: &'static str, given: Permille) -> Result<(), PresetError> {
    if given.0 <= 1000 {
        Ok(())
    } else {
        Err(PresetError::OverAll {
            name,
            given: given.0,
            most: 1000,
        })
    }
}
