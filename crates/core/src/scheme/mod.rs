//! Schemes (DAMOS): apply an action to memory of a given access pattern, within limits.
//!
//! A [`Scheme`] is what the user wrote; how it is carried out, and what that needs to remember, is in
//! `SchemeState`.

mod filter;
mod goal;
mod pattern;
mod quota;
mod stats;
mod watermarks;

pub use filter::{CoreFilter, CoreFilterKind, Filters, OpsFilter, OpsFilterKind};
pub use goal::{Goal, GoalTuner, SystemMetric};
pub use pattern::{AccessPattern, Age, Bounds, Rate};
pub use quota::{Quota, Weights};
pub use stats::SchemeStats;
pub use watermarks::{WatermarkMetric, Watermarks};

use crate::action::Action;
use crate::units::Nanos;

/// One scheme.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheme {
    /// What to do.
    pub action: Action,
    /// To memory of which access pattern.
    pub pattern: AccessPattern,
    /// How often; `None`: once an aggregation.
    pub apply_interval: Option<Nanos>,
    /// How much.
    pub quota: Quota,
    /// While which state of the machine.
    pub watermarks: Watermarks,
    /// To which of the matching memory.
    pub filters: Filters,
    /// After how many snapshots (apply intervals in which it was active) it stops; 0: never.
    pub max_nr_snapshots: u64,
}

impl Scheme {
    /// A scheme that does `action` to everything, without a limit: change what should be otherwise.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self {
            action,
            pattern: AccessPattern::default(),
            apply_interval: None,
            quota: Quota::default(),
            watermarks: Watermarks::default(),
            filters: Filters::default(),
            max_nr_snapshots: 0,
        }
    }
}
