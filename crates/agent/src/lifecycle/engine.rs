//! The engine: from words about applications to decisions and orders.
//!
//! A function of what it is told: it has no clock, reads nothing and starts nothing. Whoever drives it calls
//! [`Engine::hear`] with every word, [`Engine::due`] when [`Engine::next_wake`] has come, [`Engine::ended`] when an
//! order was carried out, and after each of them carries out [`Engine::orders`].
//!
//! One reclaim runs at a time, and one prefetch beside it. Of those that wait, the application that was used least
//! recently is reclaimed from first; who came back last is prefetched for first.

use std::collections::BTreeMap;

use thermo_units::{Bytes, Nanos};

use super::decision::{Decision, Kind};
use super::rules::Rules;
use super::state::{Source, State, StateEvent};
use super::{Cost, End, Profile};

mod app;
mod guard;
mod status;

use app::{App, Job};
pub use status::Standing;

/// What decisions depend on besides words.
pub trait Facts {
    /// Resident anonymous memory of an application; `None` when none of its processes runs.
    fn anon_rss(&mut self, app: &str) -> Option<Bytes>;

    /// Free and all swap.
    fn swap(&mut self) -> (Bytes, Bytes);
}

/// What is to be done. A job has the number of the decision that caused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Reclaim from an application.
    Reclaim {
        /// Its number.
        job: u64,
        /// From whom.
        app: String,
        /// What.
        profile: Profile,
        /// When the word that caused it was heard.
        since: Nanos,
    },
    /// Bring in what an application used last time.
    Prefetch {
        /// Its number.
        job: u64,
        /// For whom.
        app: String,
        /// When the word that caused it was heard.
        since: Nanos,
    },
    /// Stop a job after the call it is in.
    Cancel {
        /// Its number.
        job: u64,
    },
}

/// An application that is not described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no application {0:?}: `thermo lifecycle status` lists them")]
pub struct UnknownApp(pub String);

/// A decision that was made, before it is kept.
struct Made {
    kind: Kind,
    reason: String,
}

/// The engine. See the module's text.
#[derive(Debug, Default)]
pub struct Engine {
    apps: BTreeMap<String, App>,
    nr: u64,
    reclaiming: Option<u64>,
    prefetching: Option<u64>,
    cancels: Vec<u64>,
    told: Vec<Decision>,
}

impl Engine {
    /// Describes the applications anew. Those that were there keep their state; what is done for those that are not
    /// there any more is stopped.
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

    /// Takes in a word about `app` and decides. Returns the state it is in now.
    ///
    /// # Errors
    /// There is no such application.
    pub fn hear(
        &mut self,
        name: &str,
        word: StateEvent,
        now: Nanos,
        facts: &mut dyn Facts,
    ) -> Result<State, UnknownApp> {
        let Some(app) = self.apps.get_mut(name) else {
            return Err(UnknownApp(name.chars().take(80).collect()));
        };
        app.words.hear(word);
        let ((to, source), from) = (app.words.state(), app.state);
        if to == from {
            app.source = source;
            if let StateEvent::Set(_) = word {
                let reason = format!("it is {to} already");
                let made = Made {
                    kind: Kind::Nothing,
                    reason,
                };
                self.decide(name, from, source, made, now);
            }
            return Ok(to);
        }
        app.enter(to, source, now);
        self.stop_what_no_longer_fits(name, from, source, now);
        self.begin_what_fits(name, from, source, now, facts);
        Ok(to)
    }

    /// Thinks again about what was deferred until now.
    pub fn due(&mut self, now: Nanos, facts: &mut dyn Facts) {
        let is_due = |(_, app): &(&String, &App)| app.wanted.is_some_and(|(_, when)| when <= now);
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
            if let Some((profile, _)) = app.wanted.take() {
                self.consider(&name, profile, state, source, now, facts);
            }
        }
    }

    /// When [`Engine::due`] is to be called next, if at all.
    #[must_use]
    pub fn next_wake(&self) -> Option<Nanos> {
        self.apps.values().filter_map(|app| Some(app.wanted?.1)).min()
    }

    /// What is to be done now; each order is given once.
    pub fn orders(&mut self) -> Vec<Order> {
        let cancels = self.cancels.drain(..);
        let mut orders: Vec<Order> = cancels.map(|job| Order::Cancel { job }).collect();
        if self.reclaiming.is_none() {
            let waiting = |app: &&mut App| app.waits_for(|job| job.profile.is_some());
            let next = self.apps.iter_mut().filter(|(_, app)| waiting(app));
            let next = next.min_by_key(|(_, app)| app.last_used);
            let next = next.and_then(|(name, app)| app.start(name));
            self.reclaiming = next.as_ref().map(Order::job);
            orders.extend(next);
        }
        if self.prefetching.is_none() {
            let waiting = |app: &&mut App| app.waits_for(|job| job.profile.is_none());
            let next = self.apps.iter_mut().filter(|(_, app)| waiting(app));
            let next = next.max_by_key(|(_, app)| app.since);
            let next = next.and_then(|(name, app)| app.start(name));
            self.prefetching = next.as_ref().map(Order::job);
            orders.extend(next);
        }
        orders
    }

    /// Takes in what a job came to.
    pub fn ended(&mut self, job: u64, cost: Cost, now: Nanos) {
        for slot in [&mut self.reclaiming, &mut self.prefetching] {
            *slot = slot.filter(|running| *running != job);
        }
        let of_it = |app: &&mut App| app.running.is_some_and(|running| running.nr == job);
        let Some(app) = self.apps.values_mut().find(of_it) else {
            return;
        };
        if let Some(profile) = app.running.take().and_then(|job| job.profile) {
            app.last = Some((profile, now));
            let all_out = cost.end == End::Done && profile.takes_swap();
            app.anon_rss_after = cost.anon_rss_after.filter(|_| all_out);
            app.freed += cost.freed;
        }
        app.working_set = cost.working_set.or(app.working_set);
        self.told.extend(app.close(job, cost));
    }

    /// Decisions that were made, or came to an end, since this was last asked; a reclaim or prefetch is told once it
    /// has ended.
    pub fn told(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.told)
    }

    /// The decisions kept about an application, the oldest first.
    ///
    /// # Errors
    /// There is no such application.
    pub fn why(&self, name: &str) -> Result<impl Iterator<Item = &Decision> + use<'_>, UnknownApp> {
        let app = self.apps.get(name);
        let app = app.ok_or_else(|| UnknownApp(name.chars().take(80).collect()))?;
        Ok(app.log.iter())
    }

    fn stop_what_no_longer_fits(&mut self, name: &str, from: State, source: Source, now: Nanos) {
        let Some(app) = self.apps.get_mut(name) else {
            return;
        };
        app.wanted = None;
        let (back, in_use) = (app.state < from, app.state.is_in_use());
        let fits = |job: &Job| match job.profile {
            Some(_) => !back,
            None => in_use,
        };
        let what = if back { "the reclaim" } else { "the prefetch" };
        let reason = if let Some(job) = app.queued.take_if(|job| !fits(job)) {
            self.told
                .extend(app.close(job.nr, Cost::of_nothing(End::Cancelled)));
            format!("it is {} now: {what} that waited is not begun", app.state)
        } else if let Some(job) = app.running.filter(|job| !fits(job)) {
            self.cancels.push(job.nr);
            format!("it is {} now: {what} stops after the call it is in", app.state)
        } else {
            return;
        };
        let kind = Kind::Cancel;
        self.decide(name, from, source, Made { kind, reason }, now);
    }

    fn begin_what_fits(
        &mut self,
        name: &str,
        from: State,
        source: Source,
        now: Nanos,
        facts: &mut dyn Facts,
    ) {
        let Some(app) = self.apps.get_mut(name) else {
            return;
        };
        let profile = match app.state {
            State::Cached => Some(app.rules.profile),
            State::Background if from.is_in_use() => app.rules.background,
            _ => None,
        };
        if let Some(profile) = profile {
            return self.consider(name, profile, from, source, now, facts);
        }
        let made = match app.working_set.filter(|bytes| *bytes > Bytes::ZERO) {
            Some(bytes) if app.rules.prefetch && app.state.is_in_use() && from == State::Cached => Made {
                kind: Kind::Prefetch,
                reason: format!("it comes back, and used {bytes} last time"),
            },
            _ => Made {
                kind: Kind::Nothing,
                reason: format!("nothing is done to an application that becomes {}", app.state),
            },
        };
        let (kind, since) = (made.kind, now);
        let nr = self.decide(name, from, source, made, now);
        if kind == Kind::Prefetch
            && let Some(app) = self.apps.get_mut(name)
        {
            app.queued = Some(Job {
                nr,
                profile: None,
                since,
            });
        }
    }

    /// Decides about reclaiming by `profile`.
    fn consider(
        &mut self,
        name: &str,
        profile: Profile,
        from: State,
        source: Source,
        now: Nanos,
        facts: &mut dyn Facts,
    ) {
        let Some(app) = self.apps.get(name) else { return };
        let (made, wanted) = guard::judge(name, app, profile, now, facts);
        let kind = made.kind;
        let nr = self.decide(name, from, source, made, now);
        let Some(app) = self.apps.get_mut(name) else {
            return;
        };
        app.wanted = wanted;
        if let Kind::Reclaim(profile) = kind {
            let job = Job {
                nr,
                profile: Some(profile),
                since: now,
            };
            // One that still waits since it went to the background is overtaken.
            if let Some(overtaken) = app.queued.replace(job) {
                let closed = app.close(overtaken.nr, Cost::of_nothing(End::Cancelled));
                self.told.extend(closed);
            }
        }
    }

    /// Keeps a decision. Returns its number.
    fn decide(&mut self, name: &str, from: State, source: Source, made: Made, at: Nanos) -> u64 {
        self.nr += 1;
        let Some(app) = self.apps.get_mut(name) else {
            return self.nr;
        };
        let Made { kind, reason } = made;
        let decision = Decision {
            nr: self.nr,
            app: name.to_owned(),
            at,
            from,
            to: app.state,
            source,
            kind,
            reason,
            cost: None,
        };
        if !matches!(kind, Kind::Reclaim(_) | Kind::Prefetch) {
            self.told.push(decision.clone());
        }
        app.keep(decision);
        self.nr
    }
}

impl Order {
    const fn job(&self) -> u64 {
        match self {
            Self::Reclaim { job, .. } | Self::Prefetch { job, .. } | Self::Cancel { job } => *job,
        }
    }
}

#[cfg(test)]
mod tests;
