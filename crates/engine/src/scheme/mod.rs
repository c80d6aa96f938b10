//! Schemes (DAMOS): apply an action to memory of a given access pattern, within limits.
//!
//! A [`Scheme`] is what the user wrote; how it is carried out, and what that needs to remember, is in
//! [`SchemeState`]. A context calls [`apply`](apply()) after each sampling interval and [`check_watermarks`] before
//! the next. Each time a scheme is due:
//!
//! 1. the quota window is renewed if it is over: goals and the throughput so far set its size (`window`,
//!    `spending`, `feed`);
//! 2. what matches the pattern and passes the core filters is scored, and the best of it chosen as far as the
//!    quota reaches (`select`, `priority`, `verdict`, `joined`, `units`);
//! 3. regions are cut where only a part was chosen (`cut`), the operations are asked to act on all of it at
//!    once, and what became of it is accounted (`apply`).
//!
//! It differs from the kernel in that a scheme's pieces are handed over together, coldest (or hottest) first
//! across all targets, where the kernel goes by address and takes whatever is above a lowest score.
//!
//! # Example
//! "Page out memory regions larger than 100 MiB that were hardly accessed (5 % of all looks at most) for more
//! than two minutes":
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

mod apply;
mod candidate;
mod check;
mod cut;
mod feedback;
mod filter;
mod filter_eval;
mod goal;
mod huge_page_units;
mod pattern;
mod priority;
mod quota;
mod select;
mod state;
mod stats;
mod time_quota;
mod units;
mod validation_error;
mod watermark_eval;
mod watermarks;
mod window;

pub use apply::apply;
pub use candidate::{ApplyInput, TargetMut, Turn};
pub use check::check;
pub(crate) use feedback::{REACHED, feed};
pub use filter::{CoreFilter, CoreFilterKind, Filter, Filters, OpsFilter, OpsFilterKind};
pub use goal::{Goal, GoalTuner, SystemMetric};
pub use pattern::{AccessPattern, Age, Bounds, Rate};
pub use quota::{Quota, Weights};
pub use state::SchemeState;
pub use stats::SchemeStats;
pub use validation_error::{Contradiction, SchemeError};
pub use watermark_eval::check_watermarks;
pub use watermarks::{WatermarkMetric, Watermarks};

use crate::action::Action;
use thermo_units::Nanos;

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
