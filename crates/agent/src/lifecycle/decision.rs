//! Decisions, kept with their reasons and what came of them.

use serde_json::{Value, json};
use thermo_units::Nanos;

use super::{Cost, End, Profile, Source, State};

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To reclaim.
    Reclaim(Profile),
    /// To reclaim later.
    Defer(Profile),
    /// Not to reclaim.
    Skip,
    /// To stop a reclaim.
    Cancel,
    /// To bring in what was used last time.
    Prefetch,
    /// Nothing.
    Nothing,
}

impl Kind {
    /// The word for it.
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

    /// Of what profile.
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
    /// Counted over all applications.
    pub nr: u64,
    /// About whom.
    pub app: String,
    /// When, on the monotonic clock.
    pub at: Nanos,
    /// The state before.
    pub from: State,
    /// The state from now on.
    pub to: State,
    /// Who caused it.
    pub source: Source,
    /// What.
    pub kind: Kind,
    /// Why, in a sentence.
    pub reason: String,
    /// What it came to, once that is known.
    pub cost: Option<Cost>,
}

impl Decision {
    /// As JSON; `wall_offset_ns` is what the clock on the wall is ahead of the monotonic one.
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
            "cost": self.cost.as_ref().map(cost),
        })
    }
}

fn cost(cost: &Cost) -> Value {
    let micros = |time: Nanos| time.0 / 1000;
    let error = match &cost.end {
        End::Failed(why) => Some(why),
        _ => None,
    };
    json!({
        "end": cost.end.name(),
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
