//! What can be wrong with a scheme, in words.

use thermo_units::AddrRange;
use thermo_units::{Bytes, Permille};

/// A scheme that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scheme {scheme}: {contradiction}")]
pub struct SchemeError {
    /// Which, counted from 0.
    pub scheme: usize,
    /// Why it cannot be meant.
    pub contradiction: Contradiction,
}

/// What in a scheme cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Bounds of the access pattern the wrong way round: nothing can match.
    #[error(
        "the least {what} ({min}) is above the most ({max}), so nothing can match: swap them or widen one"
    )]
    Bounds {
        /// `size`, `nr_accesses` or `age`.
        what: &'static str,
        /// The lower bound.
        min: String,
        /// The upper bound.
        max: String,
    },
    /// A share above the whole.
    #[error("{what} is {given}, and the most is 100 %")]
    OverAll {
        /// Of what.
        what: &'static str,
        /// What was given.
        given: Permille,
    },
    /// Watermarks out of order.
    #[error(
        "the watermarks are out of order (high {high}, mid {mid}, low {low}): high must be the largest, low the smallest"
    )]
    Watermarks {
        /// The upper.
        high: Permille,
        /// The middle.
        mid: Permille,
        /// The lower.
        low: Permille,
    },
    /// Watermarks that would be looked at all the time.
    #[error(
        "the interval of its watermarks is 0: say how often to look at them while the scheme rests, like 5s"
    )]
    WatermarkInterval,
    /// A filter on nothing.
    #[error(
        "filter {filter} is for the addresses {range}, which is nothing: the end must lie behind the start"
    )]
    EmptyFilter {
        /// Which core filter, from 0.
        filter: usize,
        /// Its range.
        range: AddrRange,
    },
    /// A filter no page passes.
    #[error("filter {filter} is for huge pages from {min} to {max}: the least must not be above the most")]
    HugepageSize {
        /// Which ops filter, from 0.
        filter: usize,
        /// The least.
        min: Bytes,
        /// The most.
        max: Bytes,
    },
}
