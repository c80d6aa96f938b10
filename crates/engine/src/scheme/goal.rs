//! What a quota is tuned towards, and the metrics of the machine that goals and watermarks go by.

/// A value of the machine that can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemMetric {
    /// Total "some" memory stall time of the machine, in microseconds since boot; goals use its growth over a
    /// window.
    SomeMemPsiUs,
    /// Used memory of a node, in ten-thousandths of it.
    NodeMemUsedBp {
        /// The node.
        nid: u32,
    },
    /// Free memory of a node, in ten-thousandths of it.
    NodeMemFreeBp {
        /// The node.
        nid: u32,
    },
    /// Memory of a node that a memory control group uses, in ten-thousandths of the node.
    NodeMemcgUsedBp {
        /// The node.
        nid: u32,
        /// The group, below the controller's mount.
        path: String,
    },
    /// Memory of a node that a memory control group does not use, in ten-thousandths of the node.
    NodeMemcgFreeBp {
        /// The node.
        nid: u32,
        /// The group, below the controller's mount.
        path: String,
    },
    /// Active LRU pages, in ten-thousandths of active and inactive.
    ActiveMemBp,
    /// Inactive LRU pages, in ten-thousandths of active and inactive.
    InactiveMemBp,
    /// Free memory of the machine, in thousandths of it (watermarks).
    FreeMemRate,
}

/// One goal: bring a value to its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// A value the user gives (`user_input`).
    UserInput {
        /// What it should be; 0 switches the goal off.
        target: u64,
        /// What it is now.
        current: u64,
    },
    /// A value of the machine.
    Metric {
        /// Which.
        metric: SystemMetric,
        /// What it should be; 0 switches the goal off.
        target: u64,
    },
}

/// How the size quota follows its goals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GoalTuner {
    /// In proportion to the distance, all the time (the kernel's `consist`).
    #[default]
    Consist,
    /// As much as allowed until the goal is reached, then nothing (`temporal`).
    Temporal,
}

impl Goal {
    /// What the value should be; 0: the goal is switched off.
    #[must_use]
    pub const fn target(&self) -> u64 {
        match self {
            Self::UserInput { target, .. } | Self::Metric { target, .. } => *target,
        }
    }

    /// Whether both go by the same value, whatever it should be.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::UserInput { .. }, Self::UserInput { .. }) => true,
            (Self::Metric { metric, .. }, Self::Metric { metric: other, .. }) => metric == other,
            _ => false,
        }
    }
}
