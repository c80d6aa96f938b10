//! A kdamond that runs, and what can be asked of it.

use std::sync::mpsc::{Receiver, channel};

use rustix::io::Errno;
use thermo_engine::scheme::SchemeStats;
use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Attrs, Scheme};
use thermo_kernel::pidfd::PidFd;
use thermo_runtime::kdamond::{Kdamond, Parts};

use super::Goals;
use super::build::{Built, Settings, StagedTarget, Watch};
use super::listener::{Listener, Tried};
use super::summary::Summary;
use super::targets::{Targets, is_there};

type Owned = Parts<Targets, Listener>;

/// A kdamond that runs.
pub struct Running {
    kdamond: Kdamond<Targets, Listener>,
    tid: i32,
    /// Who is watched, held here as well: whether anybody is left is asked without disturbing the thread. None where
    /// others may join: then the thread knows.
    watched: Option<Vec<PidFd>>,
    goal: Option<IntervalsGoal>,
}

/// What a kdamond is doing.
pub struct Found {
    /// The intervals in force.
    pub attrs: Attrs,
    /// Statistics of the schemes, in their order.
    pub stats: Vec<SchemeStats>,
}

impl Running {
    /// Starts the thread on `parts`.
    pub(super) fn start(number: u32, parts: Owned, goal: Option<IntervalsGoal>) -> Result<Self, Errno> {
        let hold = |pids: Vec<u32>| pids.into_iter().filter_map(|pid| PidFd::open(pid).ok()).collect();
        let watched = parts.ops.pids().map(hold);
        let kdamond = Kdamond::start(number, parts).map_err(|_| Errno::NOMEM)?;
        let tid = kdamond.call(|parts| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            parts.sink.is_of(tid);
            tid
        });
        // One whose targets were gone at once has ended already.
        let tid = tid.unwrap_or_default();
        Ok(Self {
            kdamond,
            tid,
            watched,
            goal,
        })
    }

    /// Its thread.
    pub const fn tid(&self) -> i32 {
        self.tid
    }

    /// Whether it has ended or has nobody left to watch.
    pub fn is_over(&self) -> bool {
        let nobody_left = |watched: &Vec<PidFd>| !watched.iter().any(is_there);
        self.kdamond.is_finished() || self.watched.as_ref().is_some_and(nobody_left)
    }

    /// Stops it, waits until it has, and tells what its schemes had done by then.
    pub fn stop(self) -> Vec<SchemeStats> {
        stats(&self.kdamond.stop().parts)
    }

    /// What it is doing.
    pub fn found(&self) -> Result<Found, Errno> {
        self.call(|parts| {
            let attrs = *parts.context.attrs();
            let stats = stats(parts);
            Ok(Found { attrs, stats })
        })
    }

    /// How much is accessed and how long the rest was not, as the last aggregation saw it.
    pub fn summary(&self) -> Result<Summary, Errno> {
        self.call(|parts| {
            let targets = parts.context.targets();
            let regions = targets.flat_map(|target| target.regions);
            Ok(Summary::of(regions, parts.context.attrs().aggr))
        })
    }

    /// Changes everything to what was built; regions and statistics stay.
    pub fn commit(&mut self, built: Built) -> Result<(), Errno> {
        self.change(built.settings)?;
        let Watch::Staged(rule, targets) = built.watch else {
            return Ok(());
        };
        let held = |target: &StagedTarget| PidFd::open(target.process.pid).ok();
        self.watched = Some(targets.iter().filter_map(held).collect());
        self.call(move |parts| {
            parts.ops.commit(rule, targets);
            parts.context.update_targets_next();
            Ok(())
        })
    }

    /// Changes how to look and what to do; targets, regions and statistics stay.
    pub fn change(&mut self, to: Settings) -> Result<(), Errno> {
        let before = std::mem::replace(&mut self.goal, to.goal);
        self.call(move |parts| {
            let nr_schemes = to.schemes.len();
            let context = &mut parts.context;
            if to.attrs != *context.attrs() || to.goal != before {
                context.set_attrs(to.attrs).map_err(|_| Errno::INVAL)?;
                context.set_intervals_goal(to.goal).map_err(|_| Errno::INVAL)?;
            }
            context.set_schemes(to.schemes).map_err(|_| Errno::INVAL)?;
            parts.sink.forget_schemes(nr_schemes);
            Ok(())
        })
    }

    /// Changes what the schemes are tuned towards, and nothing else.
    pub fn commit_goals(&self, goals: Goals) -> Result<(), Errno> {
        self.call(move |parts| {
            let schemes = parts.context.schemes().iter().map(|state| state.scheme().clone());
            let mut schemes: Vec<Scheme> = schemes.collect();
            for (scheme, goals) in schemes.iter_mut().zip(goals) {
                scheme.quota.goals = goals;
            }
            parts.context.set_schemes(schemes).map_err(|_| Errno::INVAL)
        })
    }

    /// Begins to collect what each active scheme is applied to next.
    ///
    /// # Errors
    /// EBUSY: somebody else does. ECANCELED: there is no active scheme.
    pub fn collect(&self) -> Result<Receiver<Tried>, Errno> {
        self.call(|parts| {
            let schemes = parts.context.schemes().iter().enumerate();
            let active: Vec<usize> = schemes
                .filter(|(_, s)| s.is_active())
                .map(|(nth, _)| nth)
                .collect();
            if active.is_empty() {
                return Err(Errno::CANCELED);
            }
            let (done, tried) = channel();
            if parts.sink.collect(active, done) {
                Ok(tried)
            } else {
                Err(Errno::BUSY)
            }
        })
    }

    /// Collects for nobody any more.
    pub fn collect_no_more(&self) -> Result<(), Errno> {
        self.call(|parts| {
            parts.sink.collect_no_more();
            Ok(())
        })
    }

    fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Owned) -> Result<R, Errno> + Send + 'static,
    ) -> Result<R, Errno> {
        self.kdamond.call(f).unwrap_or(Err(Errno::INVAL))
    }
}

fn stats(parts: &Owned) -> Vec<SchemeStats> {
    let schemes = parts.context.schemes().iter();
    schemes.map(|scheme| *scheme.stats()).collect()
}
