//! A running kdamond and its commands.

use std::sync::mpsc::{Receiver, channel};

use rustix::io::Errno;
use thermo_engine::scheme::SchemeStats;
use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Attrs, Scheme};
use thermo_kernel::pidfd::PidFd;
use thermo_kernel::scheduling::{Policy, set_policy};
use thermo_runtime::Vaddr;
use thermo_runtime::kdamond::{Kdamond, Parts};

use super::Goals;
use super::build::{ContextConfig, Settings, StagedTarget, TargetSelection};
use super::listener::{Listener, TriedRegions};
use super::summary::Summary;
use super::targets::{Targets, pid_exists};

type KdamondParts = Parts<Vaddr<Targets>, Listener>;

/// A running kdamond.
pub struct Running {
    kdamond: Kdamond<Vaddr<Targets>, Listener>,
    tid: i32,
    /// The targets, to check without a call to the thread whether any is left. `None` if further processes
    /// may join: then only the thread knows.
    targets: Option<Vec<PidFd>>,
    goal: Option<IntervalsGoal>,
}

/// Current attributes and statistics of a kdamond.
pub struct Status {
    /// The attributes in use, with tuned intervals.
    pub attrs: Attrs,
    /// Statistics of the schemes, in their order.
    pub stats: Vec<SchemeStats>,
}

impl Running {
    /// Starts the thread on `parts`.
    pub(super) fn start(
        number: u32,
        parts: KdamondParts,
        goal: Option<IntervalsGoal>,
    ) -> Result<Self, Errno> {
        let open_all = |pids: Vec<u32>| pids.into_iter().filter_map(|pid| PidFd::open(pid).ok()).collect();
        let targets = parts.ops.targets().pids().map(open_all);
        let kdamond = Kdamond::start(number, parts).map_err(|_| Errno::NOMEM)?;
        let tid = kdamond.call(|parts| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            parts.sink.set_tid(tid);
            // Like every thread of the kernel. A policy or nice value inherited from the caller would delay
            // access checks on a busy machine.
            let normal = set_policy(Policy::Other)
                .and_then(|()| Ok(rustix::process::setpriority_process(None, 0)?));
            if let Err(error) = normal {
                parts.sink.warn(&format!(
                    "cannot set SCHED_OTHER and nice value 0 ({error}): access checks may be late on a busy machine"
                ));
            }
            tid
        });
        // The call fails if all targets ended at once and the kdamond with them.
        let tid = tid.unwrap_or_default();
        Ok(Self {
            kdamond,
            tid,
            targets,
            goal,
        })
    }

    /// The thread id.
    pub const fn tid(&self) -> i32 {
        self.tid
    }

    /// Returns true if the thread has ended or no target is left.
    pub fn has_ended(&self) -> bool {
        let all_gone = |targets: &Vec<PidFd>| !targets.iter().any(pid_exists);
        self.kdamond.is_finished() || self.targets.as_ref().is_some_and(all_gone)
    }

    /// Stops the thread, waits for its end and returns the final statistics of the schemes.
    pub fn stop(self) -> Vec<SchemeStats> {
        stats(&self.kdamond.stop().parts)
    }

    /// Current attributes and statistics.
    pub fn status(&self) -> Result<Status, Errno> {
        self.call(|parts| {
            let attrs = *parts.context.attrs();
            let stats = stats(parts);
            Ok(Status { attrs, stats })
        })
    }

    /// Access rate and idle times as of the last aggregation.
    pub fn summary(&self) -> Result<Summary, Errno> {
        self.call(|parts| {
            let targets = parts.context.targets();
            let regions = targets.flat_map(|target| target.regions);
            Ok(Summary::new(regions, parts.context.attrs().aggr))
        })
    }

    /// Applies a new configuration. Regions and statistics are kept.
    pub fn commit(&mut self, config: ContextConfig) -> Result<(), Errno> {
        self.apply_settings(config.settings)?;
        let TargetSelection::Staged(source, targets) = config.targets else {
            return Ok(());
        };
        let open = |target: &StagedTarget| PidFd::open(target.process.pid).ok();
        self.targets = Some(targets.iter().filter_map(open).collect());
        self.call(move |parts| {
            parts.ops.targets_mut().commit(source, targets);
            parts.context.update_targets_next();
            Ok(())
        })
    }

    /// Applies new attributes and schemes. Targets, regions and statistics are kept.
    pub fn apply_settings(&mut self, new: Settings) -> Result<(), Errno> {
        let old_goal = std::mem::replace(&mut self.goal, new.goal);
        self.call(move |parts| {
            let nr_schemes = new.schemes.len();
            let context = &mut parts.context;
            if new.attrs != *context.attrs() || new.goal != old_goal {
                context.set_attrs(new.attrs).map_err(|_| Errno::INVAL)?;
                context.set_intervals_goal(new.goal).map_err(|_| Errno::INVAL)?;
            }
            context.set_schemes(new.schemes).map_err(|_| Errno::INVAL)?;
            parts.sink.forget_schemes(nr_schemes);
            Ok(())
        })
    }

    /// Replaces the quota goals of the schemes. Everything else is kept.
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

    /// Starts to collect the regions of the next application of each active scheme.
    ///
    /// # Errors
    /// EBUSY: another collection is in progress. ECANCELED: no scheme is active.
    pub fn collect_tried_regions(&self) -> Result<Receiver<TriedRegions>, Errno> {
        self.call(|parts| {
            let schemes = parts.context.schemes().iter().enumerate();
            let active: Vec<usize> = schemes
                .filter(|(_, s)| s.is_active())
                .map(|(nth, _)| nth)
                .collect();
            if active.is_empty() {
                return Err(Errno::CANCELED);
            }
            let (sender, receiver) = channel();
            if parts.sink.collect(active, sender) {
                Ok(receiver)
            } else {
                Err(Errno::BUSY)
            }
        })
    }

    /// Drops the collection in progress.
    pub fn cancel_collection(&self) -> Result<(), Errno> {
        self.call(|parts| {
            parts.sink.cancel_collection();
            Ok(())
        })
    }

    fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut KdamondParts) -> Result<R, Errno> + Send + 'static,
    ) -> Result<R, Errno> {
        self.kdamond.call(f).unwrap_or(Err(Errno::INVAL))
    }
}

fn stats(parts: &KdamondParts) -> Vec<SchemeStats> {
    let schemes = parts.context.schemes().iter();
    schemes.map(|scheme| *scheme.stats()).collect()
}
