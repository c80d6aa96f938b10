//! What the engine knows of one application.

use std::collections::VecDeque;

use thermo_units::{Bytes, Nanos};

use super::Order;
use crate::lifecycle::decision::Decision;
use crate::lifecycle::{Cost, Profile, Rules, Source, State, StateEvents};

/// Decisions kept for each application.
pub(super) const KEPT: usize = 32;

/// What an application waits for, or what is done for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) nr: u64,
    /// `None`: a prefetch.
    pub(super) profile: Option<Profile>,
    pub(super) since: Nanos,
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) rules: Rules,
    pub(super) words: StateEvents,
    pub(super) state: State,
    pub(super) source: Source,
    pub(super) since: Nanos,
    pub(super) last_used: Nanos,
    pub(super) changes: u64,
    /// To be thought about again then.
    pub(super) wanted: Option<(Profile, Nanos)>,
    pub(super) queued: Option<Job>,
    pub(super) running: Option<Job>,
    pub(super) last: Option<(Profile, Nanos)>,
    pub(super) anon_rss_after: Option<Bytes>,
    pub(super) working_set: Option<Bytes>,
    pub(super) freed: Bytes,
    pub(super) log: VecDeque<Decision>,
}

impl App {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            rules: Rules::default(),
            words: StateEvents::default(),
            state: State::Background,
            source: Source::Begin,
            since: now,
            last_used: now,
            changes: 0,
            wanted: None,
            queued: None,
            running: None,
            last: None,
            anon_rss_after: None,
            working_set: None,
            freed: Bytes::ZERO,
            log: VecDeque::new(),
        }
    }

    pub(super) fn enter(&mut self, to: State, source: Source, now: Nanos) {
        if self.state.is_in_use() || to.is_in_use() {
            self.last_used = now;
        }
        (self.state, self.source, self.since) = (to, source, now);
        self.changes += 1;
    }

    pub(super) fn waits_for(&self, kind: impl Fn(&Job) -> bool) -> bool {
        self.running.is_none() && self.queued.as_ref().is_some_and(kind)
    }

    pub(super) fn start(&mut self, name: &str) -> Option<Order> {
        let Job {
            nr: job,
            profile,
            since,
        } = self.queued.take()?;
        self.running = Some(Job {
            nr: job,
            profile,
            since,
        });
        let app = name.to_owned();
        Some(match profile {
            Some(profile) => Order::Reclaim {
                job,
                app,
                profile,
                since,
            },
            None => Order::Prefetch { job, app, since },
        })
    }

    pub(super) fn keep(&mut self, decision: Decision) {
        if self.log.len() >= KEPT {
            // What is still going on is not forgotten before it ended.
            let running = self.running.map(|job| job.nr);
            let queued = self.queued.map(|job| job.nr);
            let over = |one: &Decision| Some(one.nr) != running && Some(one.nr) != queued;
            if let Some(oldest) = self.log.iter().position(over) {
                self.log.remove(oldest);
            }
        }
        self.log.push_back(decision);
    }

    /// Adds what a decision came to.
    pub(super) fn close(&mut self, nr: u64, cost: Cost) -> Option<Decision> {
        let decision = self.log.iter_mut().find(|decision| decision.nr == nr)?;
        decision.cost = Some(cost);
        Some(decision.clone())
    }
}
