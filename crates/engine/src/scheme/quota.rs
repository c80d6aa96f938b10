//! How much a scheme may do: bytes and time in a window, and which regions go first.

use super::goal::{Goal, GoalTuner};
use thermo_units::{Bytes, Nanos};

/// Limits of a scheme. The default is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Quota {
    /// CPU time to spend in a window; zero: no limit.
    pub time: Nanos,
    /// Bytes to act on in a window; zero: no limit.
    pub sz: Bytes,
    /// Length of the window.
    pub reset_interval: Nanos,
    /// What makes a region go first.
    pub weights: Weights,
    /// What the size limit is tuned towards.
    pub goals: Vec<Goal>,
    /// How it is tuned.
    pub tuner: GoalTuner,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            time: Nanos::ZERO,
            sz: Bytes::ZERO,
            reset_interval: Nanos::MAX,
            weights: Weights::default(),
            goals: Vec::new(),
            tuner: GoalTuner::default(),
        }
    }
}

/// How much size, access rate and age count in a region's priority, relative to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weights {
    /// Size. Kept for the files' sake: it changes nothing, as in the kernel.
    pub sz: u32,
    /// Access rate.
    pub nr_accesses: u32,
    /// Age.
    pub age: u32,
}
