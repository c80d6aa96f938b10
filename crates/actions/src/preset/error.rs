//! Errors in the parameters of a preset, by the parameter names of the kernel module.

/// Why parameters of a preset are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// A share above 100 %.
    #[error("{name} is {given}: the maximum is {max}")]
    AboveMax {
        /// The parameter.
        name: &'static str,
        /// The given value.
        given: u32,
        /// The maximum, in the parameter's unit.
        max: u32,
    },
    /// Watermarks in the wrong order.
    #[error(
        "the watermarks are out of order (wmarks_high {high}, wmarks_mid {mid}, wmarks_low {low}): high must be the \
         largest, low the smallest"
    )]
    Wmarks {
        /// `wmarks_high`.
        high: u32,
        /// `wmarks_mid`.
        mid: u32,
        /// `wmarks_low`.
        low: u32,
    },
    /// Free memory would be read without a pause.
    #[error("wmarks_interval is 0: give the time between two checks of free memory, like 5s")]
    WmarksInterval,
    /// A quota without a window.
    #[error("quota_ms is {ms} but quota_reset_interval_ms is 0: give the length of a window, like 1000")]
    MissingWindow {
        /// `quota_ms`.
        ms: u64,
    },
    /// A monitored region without addresses.
    #[error(
        "the monitored region is empty (monitor_region_start {start:#x}, monitor_region_end {end:#x}): the end must \
         be above the start, or both be 0"
    )]
    EmptyRegion {
        /// `monitor_region_start`.
        start: u64,
        /// `monitor_region_end`.
        end: u64,
    },
}
