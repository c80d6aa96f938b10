//! Quotas: limits on bytes and CPU time in a window, and the priority of regions.

use super::goal::{Goal, GoalTuner};
use thermo_units::{Bytes, Nanos};

/// Limits of a scheme. The default has no limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Quota {
    /// CPU time for the action in a window; zero: no limit.
    pub time: Nanos,
    /// Bytes to act on in a window; zero: no limit.
    pub sz: Bytes,
    /// Length of the window.
    pub reset_interval: Nanos,
    /// Weights of the priority score.
    pub weights: Weights,
    /// Goals that the size limit is tuned towards.
    pub goals: Vec<Goal>,
    /// How the size limit follows the goals.
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

/// Relative weights of size, access rate and age in the priority of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weights {
    /// Size. Has no effect, as in the kernel; exists because DAMON's control files have it.
    pub sz: u32,
    /// Access rate.
    pub nr_accesses: u32,
    /// Age.
    pub age: u32,
}
