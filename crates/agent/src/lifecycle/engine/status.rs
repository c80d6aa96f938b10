//! Where applications stand.

use serde_json::{Value, json};
use thermo_units::{Bytes, Nanos};

use super::{App, Engine};
use crate::lifecycle::{Profile, Source, State};

/// Where an application stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// Who said so.
    pub source: Source,
    /// Since when, on the monotonic clock.
    pub since: Nanos,
    /// Among the cached ones: 0 for the one used most recently.
    pub rank: Option<usize>,
    /// How often its state changed.
    pub changes: u64,
    /// What reclaim of it is.
    pub profile: Profile,
    /// True while memory is reclaimed from it or brought in for it.
    pub busy: bool,
    /// What was freed in all.
    pub freed: Bytes,
    /// What it used last time, as far as that is known.
    pub working_set: Option<Bytes>,
}

impl Standing {
    /// As JSON.
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
    /// Where every application stands, by name.
    #[must_use]
    pub fn standings(&self) -> Vec<Standing> {
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
        let standing = |(name, app): (&String, &App)| Standing {
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
        self.apps.iter().map(standing).collect()
    }
}
