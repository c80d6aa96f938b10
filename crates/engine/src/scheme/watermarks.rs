//! In which state of the machine a scheme works.

use thermo_units::{Nanos, Permille};

/// What is compared with the marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WatermarkMetric {
    /// Nothing: always active.
    #[default]
    None,
    /// Free memory in thousandths of all.
    FreeMemRate,
}

/// The marks. A scheme stops above `high` and below `low`; stopped, it starts again between `low` and `mid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watermarks {
    /// What is compared.
    pub metric: WatermarkMetric,
    /// How often, while stopped.
    pub interval: Nanos,
    /// Above: stop, there is enough.
    pub high: Permille,
    /// At or below: start.
    pub mid: Permille,
    /// Below: stop, others (kswapd) must act now.
    pub low: Permille,
}
