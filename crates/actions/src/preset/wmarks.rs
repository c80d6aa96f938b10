//! Parameters that the modules share.

use thermo_engine::scheme::{CoreFilter, CoreFilterKind, WatermarkMetric, Watermarks};
use thermo_units::{Addr, AddrRange, Nanos, Permille};

use super::error::PresetError;

/// Watermarks of free memory (`wmarks_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wmarks {
    /// Time between two checks of free memory while deactivated.
    pub interval: Nanos,
    /// Deactivate above this share of free memory.
    pub high: Permille,
    /// Activate at or below this share.
    pub mid: Permille,
    /// Deactivate below this share: the kernel's own reclaim is at work.
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
        check_share("wmarks_high", self.high)?;
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

/// A filter that skips memory outside `monitor_region_start` to `monitor_region_end`. `None` when both are 0,
/// which means all memory.
///
/// # Errors
/// The region is empty.
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

pub(super) const fn check_share(name: &'static str, given: Permille) -> Result<(), PresetError> {
    if given.0 <= 1000 {
        Ok(())
    } else {
        Err(PresetError::AboveMax {
            name,
            given: given.0,
            max: 1000,
        })
    }
}
