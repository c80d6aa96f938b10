//! Errors in the settings of a scheme.

use crate::action::Action;
use thermo_units::AddrRange;
use thermo_units::{Bytes, Permille};

/// A scheme with contradictory settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scheme {scheme}: {kind}")]
pub struct SchemeError {
    /// Index of the scheme, from 0.
    pub scheme: usize,
    /// The contradiction.
    pub kind: SchemeErrorKind,
}

/// A contradiction in the settings of a scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemeErrorKind {
    /// The minimum of a bound of the access pattern is above the maximum.
    #[error(
        "the minimum {bound} ({min}) is above the maximum ({max}), so nothing can match: swap the two or widen one"
    )]
    MinAboveMax {
        /// `size`, `nr_accesses` or `age`.
        bound: &'static str,
        /// The minimum.
        min: String,
        /// The maximum.
        max: String,
    },
    /// The minimum age is automatic and also given.
    #[error("the minimum age is automatic, but {min} is given as well: leave one of them out")]
    AutoAndFixedAge {
        /// The given minimum.
        min: String,
    },
    /// The age is automatic, but the pattern includes accessed memory.
    #[error("the automatic age is a time without accesses: set the maximum of nr_accesses to 0")]
    AutoAgeOfAccessed,
    /// A share is above 100 %.
    #[error("{setting} is {given}, but the maximum is 100 %")]
    ShareAboveWhole {
        /// The setting.
        setting: &'static str,
        /// The given value.
        given: Permille,
    },
    /// Watermarks are out of order.
    #[error(
        "the watermarks are out of order (high {high}, mid {mid}, low {low}): high must be the largest, low the smallest"
    )]
    Watermarks {
        /// The high watermark.
        high: Permille,
        /// The middle watermark.
        mid: Permille,
        /// The low watermark.
        low: Permille,
    },
    /// The watermark interval is 0.
    #[error(
        "the watermark interval is 0: give the time between two checks while the scheme is inactive, like 5s"
    )]
    WatermarkInterval,
    /// The address range of a core filter is empty.
    #[error("filter {filter} has the empty address range {range}: its end must be above its start")]
    EmptyFilter {
        /// Index of the core filter, from 0.
        filter: usize,
        /// The address range.
        range: AddrRange,
    },
    /// A migrating action has no node to migrate to.
    #[error(
        "{action} has no node to migrate to: give target_nid in a TOML or JSON file, or dests with an id and a weight for each node"
    )]
    NoDestination {
        /// The action.
        action: Action,
    },
    /// An action that does not migrate has a node.
    #[error(
        "{action} does not move memory to a node: leave target_nid and dests out, or use migrate_hot or migrate_cold"
    )]
    NeedlessDestination {
        /// The action.
        action: Action,
    },
    /// A node is given twice, or without a weight.
    #[error(
        "node {nid} is given twice or with the weight 0: give each node once, with a weight of 1 or more"
    )]
    Destination {
        /// The node.
        nid: u32,
    },
    /// No huge page size matches an ops filter.
    #[error(
        "filter {filter} is for huge pages from {min} to {max}: the minimum must not be above the maximum"
    )]
    HugepageSize {
        /// Index of the ops filter, from 0.
        filter: usize,
        /// The minimum.
        min: Bytes,
        /// The maximum.
        max: Bytes,
    },
}
