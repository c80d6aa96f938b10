//! An agent with made-up figures that move: for tests, and for work on the dashboard without root.
//!
//! All figures are consistent with each other: kinds sum to ages, ages and unknown bytes to the resident
//! size, and what is paged out is missing there. Time passes only with [`FakeAgent::tick`].

#![allow(
    clippy::indexing_slicing,
    reason = "it indexes tables that it made itself, and serves nobody but tests"
)]

mod days;
mod past;
mod profile;
mod state;

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thermo_agent::api::{
    Decision, DecisionKind, Decisions, Explanation, Export, Heatmap, Ledger, LedgerDays, Mode, Period,
    Policies, PolicyMatch, Refusal, SCHEMA, Series, Service, Status, Targets, UnixMillis,
};
use thermo_agent::audience::Audience;

use crate::profile::PROFILES;
use crate::state::State;

/// The agent with made-up figures.
#[derive(Debug)]
pub struct FakeAgent {
    state: Mutex<State>,
}

impl FakeAgent {
    /// An agent that starts at `started_ms`.
    #[must_use]
    pub fn new(started_ms: UnixMillis) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::new(started_ms)),
        })
    }

    /// Shows all targets so many times, under names of their own.
    pub fn set_copies(&self, copies: usize) {
        self.state().copies = copies;
    }

    /// One second passes.
    pub fn tick(&self) {
        self.state().tick();
    }

    /// Makes every call wait until the result is dropped.
    #[must_use]
    pub fn hold(&self) -> impl Sized + '_ {
        self.state()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_policy(name: &str) -> Refusal {
    Refusal::NotFound(format!(
        "there is no policy {name:?}: GET /api/v1/policies lists them"
    ))
}

impl Service for FakeAgent {
    fn targets(&self) -> Targets {
        self.state().targets()
    }

    fn policies(&self) -> Policies {
        self.state().policies()
    }

    fn decisions(&self, target: Option<&str>, policy: Option<&str>, after: u64) -> Decisions {
        let wanted = |decision: &&Decision| {
            decision.number > after
                && target.is_none_or(|target| decision.target.as_deref() == Some(target))
                && policy.is_none_or(|policy| decision.policy == policy)
        };
        Decisions {
            schema: SCHEMA,
            decisions: self.state().decisions.iter().filter(wanted).cloned().collect(),
        }
    }

    fn ledger(&self) -> Ledger {
        let state = self.state();
        Ledger {
            schema: SCHEMA,
            since_ms: days::since_ms(&state),
            rows: state.ledger_rows(),
        }
    }

    fn ledger_days(&self, with_targets: bool) -> LedgerDays {
        days::answer(&self.state(), with_targets)
    }

    fn status(&self) -> Status {
        let state = self.state();
        let seconds = state.seconds as f64;
        Status {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: "example".to_owned(),
            started_ms: state.started_ms,
            time_ms: state.now_ms(),
            budget_cpu_share: 0.01,
            watching_cpu_s: seconds * 0.0097,
            acting_cpu_s: seconds * 0.0004,
            cpu_s: seconds * 0.011,
            resident_bytes: 18 << 20,
            tracker: "pte".to_owned(),
            ready: state.seconds > 0,
            warnings: vec!["the figures are made up".to_owned()],
            export: Some(Export {
                files: 2,
                bytes: 40_000,
                dropped_files: 1,
            }),
        }
    }

    fn explain(&self, pid: u32, audience: Audience) -> Result<Explanation, Refusal> {
        let Some(profile) = PROFILES.iter().find(|profile| profile.pids.contains(&pid)) else {
            return Err(Refusal::NotFound(format!(
                "there is no process {pid}: `ps -e` lists them"
            )));
        };
        let matches = |policy: &state::PolicyState| PolicyMatch {
            policy: policy.name.to_owned(),
            matches: policy.name == profile.policy,
            why: format!("unit is {}", profile.name),
        };
        let mut facts = vec![("unit".to_owned(), profile.name.to_owned())];
        if audience == Audience::Admin {
            facts.push(("exe".to_owned(), format!("/usr/sbin/{}", profile.name)));
        }
        Ok(Explanation {
            schema: SCHEMA,
            pid,
            facts,
            policies: self.state().policies.iter().map(matches).collect(),
            policy: Some(profile.policy.to_owned()),
            target: Some(profile.name.to_owned()),
            rule: "the first policy that matches a process has it".to_owned(),
        })
    }

    fn history(&self, period: &Period) -> Result<Series, Refusal> {
        past::history(&self.state(), period)
    }

    fn heatmap(&self, period: &Period) -> Result<Heatmap, Refusal> {
        past::heatmap(&self.state(), period)
    }

    fn advice(&self, period: &Period) -> Result<serde_json::Value, Refusal> {
        past::advice(&self.state(), period)
    }

    fn pause(&self, policy: Option<&str>, paused: bool) -> Result<(), Refusal> {
        let mut state = self.state();
        let names: Vec<&str> = state.policies.iter().map(|policy| policy.name).collect();
        if let Some(name) = policy.filter(|name| !names.contains(name)) {
            return Err(no_policy(name));
        }
        for name in names
            .into_iter()
            .filter(|name| policy.is_none_or(|policy| policy == *name))
        {
            for policy in state.policies.iter_mut().filter(|policy| policy.name == name) {
                policy.paused = paused;
            }
            let (kind, why) = match paused {
                true => (DecisionKind::Paused, "a user paused it"),
                false => (DecisionKind::Resumed, "a user resumed it"),
            };
            state.add_decision(name, None, kind, 0, why);
        }
        state.publish();
        Ok(())
    }

    fn set_mode(&self, policy: &str, mode: Mode) -> Result<(), Refusal> {
        let mut state = self.state();
        let found = state.policies.iter_mut().find(|found| found.name == policy);
        let found = found.ok_or_else(|| no_policy(policy))?;
        if found.name == "batch" && mode != Mode::Observe {
            return Err(Refusal::Invalid(
                "policy batch has nothing to do: give it a scheme in the configuration".to_owned(),
            ));
        }
        found.mode = mode;
        let why = format!("a user set mode {}", mode.name());
        state.add_decision(policy, None, DecisionKind::ModeChanged, 0, &why);
        state.publish();
        Ok(())
    }

    fn reload(&self) -> Result<(), Refusal> {
        let mut state = self.state();
        state.add_decision(
            "",
            None,
            DecisionKind::Reloaded,
            0,
            "the configuration was read again",
        );
        Ok(())
    }

    fn publication(&self) -> u64 {
        self.state().publication
    }

    fn subscribe(&self) -> Receiver<()> {
        let (sender, receiver) = sync_channel(1);
        self.state().subscribers.push(sender);
        receiver
    }
}
