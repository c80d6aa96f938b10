//! Status of the applications.

use serde_json::{Value, json};
use thermo_units::{Bytes, Nanos};

use super::{App, Engine};
use crate::lifecycle::{Profile, Source, State};

/// Status of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppStatus {
    /// Name of the application.
    pub name: String,
    /// Current state.
    pub state: State,
    /// Source of the state.
    pub source: Source,
    /// Time of the last state change, on the monotonic clock.
    pub since: Nanos,
    /// Rank among cached applications, 0 for the most recently used; `None` in other states.
    pub rank: Option<usize>,
    /// Number of state changes.
    pub changes: u64,
    /// Reclaim profile.
    pub profile: Profile,
    /// True while a reclaim or prefetch runs.
    pub busy: bool,
    /// Bytes freed by all reclaims.
    pub freed: Bytes,
    /// Working set before the last page-out, if known.
    pub working_set: Option<Bytes>,
}

impl AppStatus {
    /// The status as JSON.
    #[must_use]
    pub fn json(&self, now: Nanos) -> Value {
        json!({
            "name": self.name,
            "state": self.state.name(),
            "source": self.source.name(),
            "for_ms": now.saturating_sub(self.since).0 / 1_000_000,
            "rank": self.rank,
            "changes": self.changes,
            "profile": self.profile.name(),
            "busy": self.busy,
            "freed_kb": self.freed.0 >> 10,
            "working_set_kb": self.working_set.map(|bytes| bytes.0 >> 10),
        })
    }
}

impl Engine {
    /// Status of all applications, sorted by name.
    #[must_use]
    pub fn status(&self) -> Vec<AppStatus> {
        let mut cached: Vec<(&String, &App)> = self
            .apps
            .iter()
            .filter(|(_, app)| app.state == State::Cached)
            .collect();
        cached.sort_by_key(|(_, app)| std::cmp::Reverse(app.last_used));
        let ranks: std::collections::BTreeMap<&String, usize> = cached
            .iter()
            .enumerate()
            .map(|(rank, (name, _))| (*name, rank))
            .collect();
        let status = |(name, app): (&String, &App)| AppStatus {
            name: name.clone(),
            state: app.state,
            source: app.source,
            since: app.since,
            rank: ranks.get(name).copied(),
            changes: app.changes,
            profile: app.rules.profile,
            busy: app.running.is_some(),
            freed: app.freed,
            working_set: app.working_set,
        };
        self.apps.iter().map(status).collect()
    }
}
