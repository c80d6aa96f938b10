//! Schemes (DAMOS): apply an action to memory of a given access pattern, within limits.
//!
//! A [`Scheme`] holds the user's settings. [`SchemeState`] holds the state that a running scheme needs. A
//! context calls [`apply_schemes`] after each sampling interval and [`check_watermarks`] before the next
//! one. Each time a scheme is due:
//!
//! 1. If the quota window has ended, the next window begins. Goals and the measured throughput set its size
//!    limit (`window`, `time_quota`, `feedback`, `eligible`).
//! 2. Memory that matches the pattern and passes the core filters gets a score. The highest scores are
//!    selected until the quota is used up (`select`, `priority`, `filter_eval`, `huge_page_units`,
//!    `pending_huge_pages`, `migration`).
//!    An automatic age sets the minimum age of the pattern (`auto_age`, `age_decision`).
//! 3. Regions of which only a part was selected are split (`split`). One request to the operations covers all
//!    selected memory. The results are added to the statistics (`apply`).
//!
//! Difference from the kernel: all selected memory is handed over in one request, the coldest (or hottest)
//! first across all targets. The kernel goes by address and takes every region above a minimum score.
//!
//! # Example
//! "Page out memory regions larger than 100 MiB that were accessed in at most 5 % of all access checks for
//! more than two minutes":
//!
//! ```
//! use thermo_engine::scheme::{self, AccessPattern, Age, Bounds, Rate, Scheme};
//! use thermo_engine::{Action, Attrs};
//! use thermo_units::{Bytes, Nanos, Permille};
//!
//! let pageout = Scheme {
//!     pattern: AccessPattern {
//!         sz: Bounds { min: Bytes::mib(100), max: Bytes::MAX },
//!         nr_accesses: Bounds { min: Rate::Permille(Permille(0)), max: Rate::Permille("5%".parse()?) },
//!         age: Bounds { min: Age::Time("2m".parse()?), max: Age::Time(Nanos::MAX) },
//!     },
//!     ..Scheme::new(Action::Pageout)
//! };
//! scheme::check(&[pageout], &Attrs::default())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod age_decision;
mod apply;
mod auto_age;
mod candidate;
mod check;
mod destination;
mod eligible;
mod feedback;
mod filter;
mod filter_eval;
mod goal;
mod huge_page_units;
mod migration;
mod pattern;
mod pending_huge_pages;
mod priority;
mod quota;
mod select;
mod split;
mod state;
mod stats;
mod time_quota;
mod validation_error;
mod watermark_eval;
mod watermarks;
mod window;

pub use age_decision::{AgeDecision, AgeReason};
pub use apply::apply_schemes;
pub use auto_age::{AutoAge, WARM_UP};
pub use candidate::{ApplyInput, ApplyTrigger, TargetMut};
pub use check::check;
pub use destination::{Destination, node_of};
pub(crate) use feedback::{SCORE_REACHED, feed_loop_next_input};
pub use filter::{CoreFilter, CoreFilterKind, Filter, Filters, OpsFilter, OpsFilterKind};
pub use goal::{Goal, GoalTuner, SystemMetric};
pub use pattern::{AccessPattern, Age, Bounds, Rate};
pub use quota::{Quota, Weights};
pub use state::SchemeState;
pub use stats::SchemeStats;
pub use validation_error::{SchemeError, SchemeErrorKind};
pub use watermark_eval::check_watermarks;
pub use watermarks::{WatermarkMetric, Watermarks};

use crate::action::Action;
use thermo_units::Nanos;

/// One scheme.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheme {
    /// The action to apply.
    pub action: Action,
    /// The nodes that migrating actions move memory to; empty for all others.
    pub destinations: Vec<Destination>,
    /// The access pattern that memory must have.
    pub pattern: AccessPattern,
    /// Chooses the minimum age of the pattern, which is 0 then. Needs scans. `None`: the pattern has it.
    pub auto_age: Option<AutoAge>,
    /// Time between two applications; `None`: the aggregation interval.
    pub apply_interval: Option<Nanos>,
    /// Limits on bytes and CPU time.
    pub quota: Quota,
    /// States of the machine in which the scheme is active.
    pub watermarks: Watermarks,
    /// Further conditions on matching memory.
    pub filters: Filters,
    /// The scheme stops after this number of snapshots (apply intervals in which it was active); 0: never.
    pub max_nr_snapshots: u64,
}

impl Scheme {
    /// A scheme that applies `action` to all memory, without limits. Change its fields to restrict it.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self {
            action,
            destinations: Vec::new(),
            pattern: AccessPattern::default(),
            auto_age: None,
            apply_interval: None,
            quota: Quota::default(),
            watermarks: Watermarks::default(),
            filters: Filters::default(),
            max_nr_snapshots: 0,
        }
    }
}
