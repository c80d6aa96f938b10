//! The engine's state of one application.

use std::collections::VecDeque;

use thermo_units::{Bytes, Nanos};

use super::ExecutorCommand;
use crate::lifecycle::decision::Decision;
use crate::lifecycle::{JobCost, Profile, Rules, Source, State, StateEvents};

/// Number of decisions stored for each application.
pub(super) const MAX_DECISIONS: usize = 32;

/// A queued or running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Job {
    /// Number of the decision that caused the job.
    pub(super) nr: u64,
    /// `None` for a prefetch.
    pub(super) profile: Option<Profile>,
    /// Time of the event that caused the job.
    pub(super) since: Nanos,
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) rules: Rules,
    pub(super) events: StateEvents,
    pub(super) state: State,
    /// Source of `state`.
    pub(super) source: Source,
    /// Time of the last change of `state`.
    pub(super) since: Nanos,
    pub(super) last_used: Nanos,
    /// Number of changes of `state`.
    pub(super) changes: u64,
    /// A deferred reclaim and the time to decide about it again.
    pub(super) deferred: Option<(Profile, Nanos)>,
    pub(super) queued: Option<Job>,
    pub(super) running: Option<Job>,
    /// Profile and end of the last reclaim.
    pub(super) last_reclaim: Option<(Profile, Nanos)>,
    /// Resident anonymous memory after the last reclaim, if that was complete.
    pub(super) anon_rss_after: Option<Bytes>,
    pub(super) working_set: Option<Bytes>,
    /// Bytes freed by all reclaims.
    pub(super) freed: Bytes,
    pub(super) log: VecDeque<Decision>,
}

impl App {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            rules: Rules::default(),
            events: StateEvents::default(),
            state: State::Background,
            source: Source::Begin,
            since: now,
            last_used: now,
            changes: 0,
            deferred: None,
            queued: None,
            running: None,
            last_reclaim: None,
            anon_rss_after: None,
            working_set: None,
            freed: Bytes::ZERO,
            log: VecDeque::new(),
        }
    }

    pub(super) fn enter_state(&mut self, to: State, source: Source, now: Nanos) {
        if self.state.is_in_use() || to.is_in_use() {
            self.last_used = now;
        }
        (self.state, self.source, self.since) = (to, source, now);
        self.changes += 1;
    }

    /// True if a queued job satisfies `filter` and no job runs.
    pub(super) fn can_start(&self, filter: impl Fn(&Job) -> bool) -> bool {
        self.running.is_none() && self.queued.as_ref().is_some_and(filter)
    }

    /// Starts the queued job.
    pub(super) fn start(&mut self, name: &str) -> Option<ExecutorCommand> {
        let queued = self.queued.take()?;
        self.running = Some(queued);
        let Job {
            nr: job,
            profile,
            since,
        } = queued;
        let app = name.to_owned();
        Some(match profile {
            Some(profile) => ExecutorCommand::Reclaim {
                job,
                app,
                profile,
                since,
            },
            None => ExecutorCommand::Prefetch { job, app, since },
        })
    }

    pub(super) fn log_decision(&mut self, decision: Decision) {
        if self.log.len() >= MAX_DECISIONS {
            // The decisions of queued and running jobs still wait for their results.
            let running = self.running.map(|job| job.nr);
            let queued = self.queued.map(|job| job.nr);
            let is_finished = |other: &Decision| Some(other.nr) != running && Some(other.nr) != queued;
            if let Some(oldest) = self.log.iter().position(is_finished) {
                self.log.remove(oldest);
            }
        }
        self.log.push_back(decision);
    }

    /// Adds the result to decision `nr` and returns the decision.
    pub(super) fn finish_decision(&mut self, nr: u64, cost: JobCost) -> Option<Decision> {
        let decision = self.log.iter_mut().find(|decision| decision.nr == nr)?;
        decision.cost = Some(cost);
        Some(decision.clone())
    }
}
