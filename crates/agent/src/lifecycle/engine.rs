//! The engine: turns state events into decisions and commands.
//!
//! The engine has no clock, no I/O and no threads. The caller calls [`Engine::handle_event`] for every event,
//! [`Engine::retry_deferred`] at the time [`Engine::next_wake`] returns, and [`Engine::job_ended`] when a job
//! has ended. After each of these calls it executes [`Engine::take_commands`].
//!
//! At most one reclaim and one prefetch run at a time. Of the queued reclaims, the least recently used
//! application goes first; of the queued prefetches, the application that returned last.

use std::collections::BTreeMap;

use thermo_units::{Bytes, Nanos};

use super::decision::{Decision, DecisionKind};
use super::rules::Rules;
use super::state::{Source, State, StateEvent};
use super::{JobCost, Outcome, Profile};

mod app;
mod guard;
mod status;

use app::{App, Job};
pub use status::AppStatus;

/// Values that the guards read.
pub trait MemoryInfo {
    /// Resident anonymous memory of an application; `None` if none of its processes runs.
    fn anon_rss(&mut self, app: &str) -> Option<Bytes>;

    /// Free swap and total swap.
    fn swap(&mut self) -> (Bytes, Bytes);
}

/// A command to the executor. `job` is the number of the decision that caused the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutorCommand {
    /// Reclaim memory of an application.
    Reclaim {
        /// Number of the job.
        job: u64,
        /// Name of the application.
        app: String,
        /// Reclaim profile.
        profile: Profile,
        /// Time of the event that caused the job.
        since: Nanos,
    },
    /// Read in the working set of an application.
    Prefetch {
        /// Number of the job.
        job: u64,
        /// Name of the application.
        app: String,
        /// Time of the event that caused the job.
        since: Nanos,
    },
    /// Stop a job after its current call.
    Cancel {
        /// Number of the job.
        job: u64,
    },
}

/// No application with this name is configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no application {0:?}: `thermo lifecycle status` lists all applications")]
pub struct UnknownApp(pub String);

impl UnknownApp {
    fn new(name: &str) -> Self {
        Self(name.chars().take(80).collect())
    }
}

/// What was decided and why, before it becomes a [`Decision`].
struct Verdict {
    kind: DecisionKind,
    reason: String,
}

/// The engine. See the module documentation.
#[derive(Debug, Default)]
pub struct Engine {
    apps: BTreeMap<String, App>,
    last_nr: u64,
    reclaiming: Option<u64>,
    prefetching: Option<u64>,
    cancels: Vec<u64>,
    /// Decisions not yet returned by [`Engine::take_decisions`].
    unreported: Vec<Decision>,
}

impl Engine {
    /// Replaces the configuration. Applications that remain keep their state; running jobs of removed
    /// applications are cancelled.
    pub fn configure(&mut self, apps: impl IntoIterator<Item = (String, Rules)>, now: Nanos) {
        let mut before = std::mem::take(&mut self.apps);
        for (name, rules) in apps {
            let mut app = before.remove(&name).unwrap_or_else(|| App::new(now));
            app.rules = rules;
            self.apps.insert(name, app);
        }
        let running = before.values().filter_map(|app| app.running);
        self.cancels.extend(running.map(|job| job.nr));
    }

    /// Applies an event to an application and decides. Returns the application's state after the event.
    ///
    /// # Errors
    /// There is no such application.
    pub fn handle_event(
        &mut self,
        name: &str,
        event: StateEvent,
        now: Nanos,
        memory: &mut dyn MemoryInfo,
    ) -> Result<State, UnknownApp> {
        let Some(app) = self.apps.get_mut(name) else {
            return Err(UnknownApp::new(name));
        };
        app.events.record(event);
        let ((to, source), from) = (app.events.state(), app.state);
        if to == from {
            app.source = source;
            if let StateEvent::Set(_) = event {
                let reason = format!("the application is {to} already");
                let verdict = Verdict {
                    kind: DecisionKind::Nothing,
                    reason,
                };
                self.log_decision(name, from, source, verdict, now);
            }
            return Ok(to);
        }
        app.enter_state(to, source, now);
        self.cancel_obsolete_job(name, from, source, now);
        self.decide(name, from, source, now, memory);
        Ok(to)
    }

    /// Decides again about deferred reclaims whose time has come.
    pub fn retry_deferred(&mut self, now: Nanos, memory: &mut dyn MemoryInfo) {
        let is_due = |(_, app): &(&String, &App)| app.deferred.is_some_and(|(_, when)| when <= now);
        let due: Vec<String> = self
            .apps
            .iter()
            .filter(is_due)
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            let Some(app) = self.apps.get_mut(&name) else {
                continue;
            };
            let (state, source) = (app.state, app.source);
            if let Some((profile, _)) = app.deferred.take() {
                self.decide_reclaim(&name, profile, state, source, now, memory);
            }
        }
    }

    /// When to call [`Engine::retry_deferred`] next; `None` if nothing is deferred.
    #[must_use]
    pub fn next_wake(&self) -> Option<Nanos> {
        self.apps.values().filter_map(|app| Some(app.deferred?.1)).min()
    }

    /// The commands to execute now. Each command is returned once.
    pub fn take_commands(&mut self) -> Vec<ExecutorCommand> {
        let cancels = self.cancels.drain(..);
        let mut commands: Vec<ExecutorCommand> = cancels.map(|job| ExecutorCommand::Cancel { job }).collect();
        if self.reclaiming.is_none() {
            let is_ready = |app: &&mut App| app.can_start(|job| job.profile.is_some());
            let ready = self.apps.iter_mut().filter(|(_, app)| is_ready(app));
            let next = ready.min_by_key(|(_, app)| app.last_used);
            let command = next.and_then(|(name, app)| app.start(name));
            self.reclaiming = command.as_ref().map(ExecutorCommand::job);
            commands.extend(command);
        }
        if self.prefetching.is_none() {
            let is_ready = |app: &&mut App| app.can_start(|job| job.profile.is_none());
            let ready = self.apps.iter_mut().filter(|(_, app)| is_ready(app));
            let next = ready.max_by_key(|(_, app)| app.since);
            let command = next.and_then(|(name, app)| app.start(name));
            self.prefetching = command.as_ref().map(ExecutorCommand::job);
            commands.extend(command);
        }
        commands
    }

    /// Records the result of a job.
    pub fn job_ended(&mut self, job: u64, cost: JobCost, now: Nanos) {
        for slot in [&mut self.reclaiming, &mut self.prefetching] {
            *slot = slot.filter(|running| *running != job);
        }
        let runs_job = |app: &&mut App| app.running.is_some_and(|running| running.nr == job);
        let Some(app) = self.apps.values_mut().find(runs_job) else {
            return;
        };
        if let Some(profile) = app.running.take().and_then(|job| job.profile) {
            app.last_reclaim = Some((profile, now));
            let is_complete = cost.outcome == Outcome::Done && profile.needs_swap();
            app.anon_rss_after = cost.anon_rss_after.filter(|_| is_complete);
            app.freed += cost.freed;
        }
        app.working_set = cost.working_set.or(app.working_set);
        self.unreported.extend(app.finish_decision(job, cost));
    }

    /// The decisions since the last call. A decision to reclaim or prefetch is returned after its job has
    /// ended.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.unreported)
    }

    /// The stored decisions about an application, oldest first.
    ///
    /// # Errors
    /// There is no such application.
    pub fn decisions(&self, name: &str) -> Result<impl Iterator<Item = &Decision> + use<'_>, UnknownApp> {
        let app = self.apps.get(name).ok_or_else(|| UnknownApp::new(name))?;
        Ok(app.log.iter())
    }

    /// Cancels a deferred, queued or running job that the new state makes obsolete.
    fn cancel_obsolete_job(&mut self, name: &str, from: State, source: Source, now: Nanos) {
        let Some(app) = self.apps.get_mut(name) else {
            return;
        };
        app.deferred = None;
        let (is_returning, is_in_use) = (app.state < from, app.state.is_in_use());
        let is_obsolete = |job: &Job| match job.profile {
            Some(_) => is_returning,
            None => !is_in_use,
        };
        let kind = if is_returning { "reclaim" } else { "prefetch" };
        let reason = if let Some(job) = app.queued.take_if(|job| is_obsolete(job)) {
            self.unreported
                .extend(app.finish_decision(job.nr, JobCost::zero(Outcome::Cancelled)));
            format!(
                "the application is {} now: its queued {kind} is cancelled",
                app.state
            )
        } else if let Some(job) = app.running.filter(is_obsolete) {
            self.cancels.push(job.nr);
            format!(
                "the application is {} now: its {kind} stops after the current call",
                app.state
            )
        } else {
            return;
        };
        let kind = DecisionKind::Cancel;
        self.log_decision(name, from, source, Verdict { kind, reason }, now);
    }

    /// Decides what the new state of an application calls for.
    fn decide(&mut self, name: &str, from: State, source: Source, now: Nanos, memory: &mut dyn MemoryInfo) {
        let Some(app) = self.apps.get_mut(name) else {
            return;
        };
        let profile = match app.state {
            State::Cached => Some(app.rules.profile),
            State::Background if from.is_in_use() => app.rules.background,
            _ => None,
        };
        if let Some(profile) = profile {
            return self.decide_reclaim(name, profile, from, source, now, memory);
        }
        let verdict = match app.working_set.filter(|bytes| *bytes > Bytes::ZERO) {
            Some(bytes) if app.rules.prefetch && app.state.is_in_use() && from == State::Cached => Verdict {
                kind: DecisionKind::Prefetch,
                reason: format!("the application returns; its working set is {bytes}"),
            },
            _ => Verdict {
                kind: DecisionKind::Nothing,
                reason: format!("an application that becomes {} needs no action", app.state),
            },
        };
        let (kind, since) = (verdict.kind, now);
        let nr = self.log_decision(name, from, source, verdict, now);
        if kind == DecisionKind::Prefetch
            && let Some(app) = self.apps.get_mut(name)
        {
            app.queued = Some(Job {
                nr,
                profile: None,
                since,
            });
        }
    }

    /// Decides whether to reclaim with `profile`, and queues the job if so.
    fn decide_reclaim(
        &mut self,
        name: &str,
        profile: Profile,
        from: State,
        source: Source,
        now: Nanos,
        memory: &mut dyn MemoryInfo,
    ) {
        let Some(app) = self.apps.get(name) else { return };
        let (verdict, deferred) = guard::evaluate(name, app, profile, now, memory);
        let kind = verdict.kind;
        let nr = self.log_decision(name, from, source, verdict, now);
        let Some(app) = self.apps.get_mut(name) else {
            return;
        };
        app.deferred = deferred;
        if let DecisionKind::Reclaim(profile) = kind {
            let job = Job {
                nr,
                profile: Some(profile),
                since: now,
            };
            // The new job replaces a job queued when the application went to the background.
            if let Some(replaced) = app.queued.replace(job) {
                let decision = app.finish_decision(replaced.nr, JobCost::zero(Outcome::Cancelled));
                self.unreported.extend(decision);
            }
        }
    }

    /// Adds a decision to the application's log. Returns its number.
    fn log_decision(&mut self, name: &str, from: State, source: Source, verdict: Verdict, at: Nanos) -> u64 {
        self.last_nr += 1;
        let Some(app) = self.apps.get_mut(name) else {
            return self.last_nr;
        };
        let Verdict { kind, reason } = verdict;
        let decision = Decision {
            nr: self.last_nr,
            app: name.to_owned(),
            at,
            from,
            to: app.state,
            source,
            kind,
            reason,
            cost: None,
        };
        if !matches!(kind, DecisionKind::Reclaim(_) | DecisionKind::Prefetch) {
            self.unreported.push(decision.clone());
        }
        app.log_decision(decision);
        self.last_nr
    }
}

impl ExecutorCommand {
    const fn job(&self) -> u64 {
        match self {
            Self::Reclaim { job, .. } | Self::Prefetch { job, .. } | Self::Cancel { job } => *job,
        }
    }
}

#[cfg(test)]
mod tests;
