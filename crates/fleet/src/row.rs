//! One row: a target, or the agent itself, over one interval.

use thermo_engine::access_tables::NR_AGES;

/// What a row describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RowKind {
    /// A target.
    #[default]
    Target,
    /// The agent itself: its resident memory and all its CPU time.
    Agent,
}

impl RowKind {
    /// Text in the column `row`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Agent => "agent",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Target, Self::Agent]
            .into_iter()
            .find(|kind| kind.name() == text)
    }
}

/// What the policy of a target may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Only monitor.
    #[default]
    Observe,
    /// Decide and count, but do nothing.
    DryRun,
    /// Act.
    Act,
}

impl Mode {
    /// Text in the column `mode`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::DryRun => "dry-run",
            Self::Act => "act",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Observe, Self::DryRun, Self::Act]
            .into_iter()
            .find(|mode| mode.name() == text)
    }
}

/// One target, or the agent itself, over one interval. Fields are columns of the same name. Deltas cover the
/// interval; all other figures hold at its end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    /// End of the interval, Unix time in ms.
    pub time_ms: u64,
    /// Length of the interval in ms. Shorter than configured after a start.
    pub interval_ms: u64,
    /// Target or agent.
    pub row: RowKind,
    /// Name of the machine.
    pub node: String,
    /// Namespace in Kubernetes.
    pub namespace: Option<String>,
    /// Pod in Kubernetes.
    pub pod: Option<String>,
    /// Container in Kubernetes.
    pub container: Option<String>,
    /// Job class: the owner in Kubernetes, otherwise unit, container image or command.
    pub workload: String,
    /// Name of the target on the node.
    pub target: String,
    /// Name of the policy.
    pub policy: String,
    /// Mode of the policy.
    pub mode: Mode,
    /// Idle age in ms at which the policy's `pageout` scheme acts now. `None` without such a scheme.
    pub min_age_ms: Option<u64>,
    /// Number of processes.
    pub processes: u32,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Bytes in swap.
    pub swap_bytes: u64,
    /// Resident bytes whose idle age is unknown.
    pub unknown_bytes: u64,
    /// Bytes accessed in the last minute.
    pub working_set_bytes: u64,
    /// Resident bytes of known idle age, by bucket of
    /// [`AGE_EDGES_S`](thermo_engine::access_tables::AGE_EDGES_S).
    pub idle_bytes: [u64; NR_AGES],
    /// The part of `idle_bytes` that belongs to files and needs no swap.
    pub idle_file_bytes: [u64; NR_AGES],
    /// Bytes accessed again during the interval, by the idle age they had.
    pub reaccess_bytes: [u64; NR_AGES],
    /// Length of a scan pass in ms: the resolution of ages. `None` before the first.
    pub pass_ms: Option<u64>,
    /// Bytes that the policy paged out during the interval.
    pub paged_out_bytes: u64,
    /// Dry run: bytes that the last application would have paged out.
    pub would_page_out_bytes: Option<u64>,
    /// Bytes that came back during the interval after the policy had paged them out.
    pub back_bytes: u64,
    /// Bytes that the policy paged out and that are still out.
    pub out_bytes: u64,
    /// The part of `out_bytes` that is in swap.
    pub out_swap_bytes: u64,
    /// `out_bytes` less the memory that `out_swap_bytes` occupy in compressed swap. May be negative.
    pub net_saved_bytes: i64,
    /// Memory that a byte in swap occupies: the ratio of zram, 0 for swap on disk. `None` without swap.
    pub swap_cost: Option<f64>,
    /// CPU time of monitoring this target during the interval, in µs. In the agent's row, the two columns
    /// together are all CPU time of the agent.
    pub watching_cpu_us: u64,
    /// CPU time of acting on this target during the interval, in µs.
    pub acting_cpu_us: u64,
}
