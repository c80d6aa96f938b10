//! Watermarks: the states of the machine in which a scheme is active.

use thermo_units::{Nanos, Permille};

/// The metric that is compared with the watermarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WatermarkMetric {
    /// Nothing: always active.
    #[default]
    None,
    /// Free memory, in thousandths of all memory.
    FreeMemRate,
}

/// Watermarks of a scheme. They deactivate the scheme above `high` and below `low`, and activate it again
/// between `low` and `mid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watermarks {
    /// The metric.
    pub metric: WatermarkMetric,
    /// Time between two checks while the scheme is inactive.
    pub interval: Nanos,
    /// Above: inactive, enough memory is free.
    pub high: Permille,
    /// Below, and not below `low`: active.
    pub mid: Permille,
    /// Below: inactive, kswapd must reclaim first.
    pub low: Permille,
}
