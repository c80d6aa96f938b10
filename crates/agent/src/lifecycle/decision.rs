//! Decisions with their reasons and results.

use serde_json::{Value, json};
use thermo_units::Nanos;

use super::{JobCost, Outcome, Profile, Source, State};

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionKind {
    /// Reclaim now.
    Reclaim(Profile),
    /// Reclaim later.
    Defer(Profile),
    /// Do not reclaim.
    Skip,
    /// Stop a reclaim or prefetch.
    Cancel,
    /// Read in the working set.
    Prefetch,
    /// The new state needs no action.
    Nothing,
}

impl DecisionKind {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reclaim(_) => "reclaim",
            Self::Defer(_) => "defer",
            Self::Skip => "skip",
            Self::Cancel => "cancel",
            Self::Prefetch => "prefetch",
            Self::Nothing => "nothing",
        }
    }

    /// The profile of a reclaim.
    #[must_use]
    pub const fn profile(self) -> Option<Profile> {
        match self {
            Self::Reclaim(profile) | Self::Defer(profile) => Some(profile),
            _ => None,
        }
    }
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Serial number, over all applications.
    pub nr: u64,
    /// Name of the application.
    pub app: String,
    /// Time on the monotonic clock.
    pub at: Nanos,
    /// State before the event.
    pub from: State,
    /// State after the event.
    pub to: State,
    /// Source of the event.
    pub source: Source,
    /// What was decided.
    pub kind: DecisionKind,
    /// Reason, in a sentence.
    pub reason: String,
    /// Result of a reclaim or prefetch, once it ended.
    pub cost: Option<JobCost>,
}

impl Decision {
    /// The decision as JSON. `wall_offset_ns` is wall-clock time minus monotonic time.
    #[must_use]
    pub fn json(&self, wall_offset_ns: i64) -> Value {
        let unix_ms = i64::try_from(self.at.0)
            .unwrap_or(i64::MAX)
            .saturating_add(wall_offset_ns)
            / 1_000_000;
        json!({
            "nr": self.nr,
            "app": self.app,
            "unix_ms": unix_ms,
            "from": self.from.name(),
            "to": self.to.name(),
            "source": self.source.name(),
            "decision": self.kind.name(),
            "profile": self.kind.profile().map(Profile::name),
            "reason": self.reason,
            "cost": self.cost.as_ref().map(cost_json),
        })
    }
}

fn cost_json(cost: &JobCost) -> Value {
    let micros = |time: Nanos| time.0 / 1000;
    let error = match &cost.outcome {
        Outcome::Failed(reason) => Some(reason),
        _ => None,
    };
    json!({
        "end": cost.outcome.name(),
        "error": error,
        "advised_kb": cost.advised.0 >> 10,
        "freed_kb": cost.freed.0 >> 10,
        "compressed_growth_kb": cost.compressed_growth.map(|bytes| bytes.0 >> 10),
        "cpu_us": micros(cost.cpu),
        "cpu_ms_per_mb": cost.cpu_ms_per_mib(),
        "elapsed_us": micros(cost.elapsed),
        "calls": cost.calls,
        "longest_call_us": micros(cost.longest_call),
        "reaction_us": cost.reaction.map(micros),
        "working_set_kb": cost.working_set.map(|bytes| bytes.0 >> 10),
    })
}
