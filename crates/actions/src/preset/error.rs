//! Parameters that cannot be meant, in words and by the names of the module.

/// Why parameters of a preset are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// A share above the whole.
    #[error("{name} is {given}, and the most is {most}")]
    OverAll {
        /// The parameter.
        name: &'static str,
        /// What was given.
        given: u32,
        /// The whole, in its unit.
        most: u32,
    },
    /// Watermarks in the wrong order.
    #[error(
        "the watermarks are out of order (wmarks_high {high}, wmarks_mid {mid}, wmarks_low {low}): high must be the largest, low the smallest"
    )]
    Wmarks {
        /// The upper.
        high: u32,
        /// The middle.
        mid: u32,
        /// The lower.
        low: u32,
    },
    /// Free memory would be read all the time.
    #[error("wmarks_interval is 0: say how often to look at free memory while resting, like 5s")]
    WmarksInterval,
    /// A limit without a window.
    #[error("quota_ms is {ms} but quota_reset_interval_ms is 0: say per which time, like 1000")]
    NoWindow {
        /// The limit.
        ms: u64,
    },
    /// Addresses that are nothing.
    #[error(
        "the monitored region is nothing (monitor_region_start {start:#x}, monitor_region_end {end:#x}): the end must lie behind the start, or both be 0"
    )]
    EmptyRegion {
        /// The begin.
        start: u64,
        /// The end.
        end: u64,
    },
}
