//! Goals that tune a quota, and the metrics of the machine that goals and watermarks use.

/// A value that the operations can read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemMetric {
    /// Total "some" memory stall time of the machine (PSI), in microseconds since boot. Goals use its growth
    /// over a window.
    SomeMemPsiUs,
    /// Used memory of a NUMA node, in ten-thousandths of the node's memory.
    NodeMemUsedBp {
        /// Number of the node.
        nid: u32,
    },
    /// Free memory of a NUMA node, in ten-thousandths of the node's memory.
    NodeMemFreeBp {
        /// Number of the node.
        nid: u32,
    },
    /// Memory of a node that a memory control group uses, in ten-thousandths of the node's memory.
    NodeMemcgUsedBp {
        /// Number of the node.
        nid: u32,
        /// Path of the group below the controller's mount.
        path: String,
    },
    /// Memory of a node that a memory control group does not use, in ten-thousandths of the node's memory.
    NodeMemcgFreeBp {
        /// Number of the node.
        nid: u32,
        /// Path of the group below the controller's mount.
        path: String,
    },
    /// Active LRU pages, in ten-thousandths of active and inactive pages.
    ActiveMemBp,
    /// Inactive LRU pages, in ten-thousandths of active and inactive pages.
    InactiveMemBp,
    /// Free memory of the machine, in thousandths of all memory (watermarks).
    FreeMemRate,
}

/// A goal: a value and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// A value that the user supplies (`user_input`).
    UserInput {
        /// The wanted value; 0 disables the goal.
        target: u64,
        /// The current value.
        current: u64,
    },
    /// A metric of the machine.
    Metric {
        /// The metric.
        metric: SystemMetric,
        /// The wanted value; 0 disables the goal.
        target: u64,
    },
    /// Of the memory that matches the access pattern of the scheme, the share on a NUMA node
    /// (`node_eligible_mem_bp`), in ten-thousandths. The kernel has it for physical memory since 7.2.
    NodeEligibleMem {
        /// Number of the node.
        nid: u32,
        /// The wanted share; 0 disables the goal.
        target: u64,
    },
}

/// How the size quota follows its goals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GoalTuner {
    /// Always, in proportion to the distance from the goal (the kernel's `consist`).
    #[default]
    Consist,
    /// Without a limit by goals until the goal is reached, then nothing (the kernel's `temporal`).
    Temporal,
}

impl Goal {
    /// The wanted value; 0: the goal is disabled.
    #[must_use]
    pub const fn target(&self) -> u64 {
        match self {
            Self::UserInput { target, .. }
            | Self::Metric { target, .. }
            | Self::NodeEligibleMem { target, .. } => *target,
        }
    }

    /// True if both goals use the same value, with any targets.
    pub(super) fn has_same_metric(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::UserInput { .. }, Self::UserInput { .. }) => true,
            (Self::Metric { metric, .. }, Self::Metric { metric: other, .. }) => metric == other,
            (Self::NodeEligibleMem { nid, .. }, Self::NodeEligibleMem { nid: other, .. }) => nid == other,
            _ => false,
        }
    }
}
