//! The engine behind the control files: one kdamond of ours for each directory that was switched on.
//!
//! Staged values come in, running contexts and what they found come out. Commands of one kdamond are done one after
//! the other, and each in the kdamond's own thread between two of its steps.

mod build;
mod listener;
mod running;
mod scheme;
mod targets;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use thermo_core::Context;
use thermo_core::scheme::Goal;
use thermo_ops::kdamond::Parts;
use thermo_ops::{Actor, PageoutLimits, Tracker};

pub use build::{Built, build};
pub use listener::Tried;
pub use running::{Found, Running};
pub use scheme::goals_of_all;

use crate::trace::Trace;
use crate::tree::Ino;
use listener::Listener;
use targets::Targets;

/// Makes a tracker for a new kdamond.
pub type Looks = Box<dyn Fn() -> Box<dyn Tracker + Send> + Send + Sync>;

/// The kdamonds.
pub struct Engine {
    root: PathBuf,
    looks: Looks,
    trace: Arc<Trace>,
    slots: Mutex<BTreeMap<Ino, Arc<Slot>>>,
}

/// A place for a kdamond, that of the directory with its number.
#[derive(Default)]
pub struct Slot {
    /// The thread, while it runs; 0 otherwise. Asked without waiting for a command to be done.
    tid: AtomicI32,
    state: Mutex<State>,
}

/// What became of a kdamond.
#[derive(Default)]
pub enum State {
    /// It never was on.
    #[default]
    Never,
    /// It runs.
    Running(Running),
    /// It ran, and was stopped or ended with its targets.
    Ended,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine for the machine at `root` (`/`), whose kdamonds look as `looks` says.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>, looks: Looks) -> Self {
        Self {
            root: root.into(),
            looks,
            trace: Arc::default(),
            slots: Mutex::default(),
        }
    }

    /// Where kdamonds tell what kernels tell as tracepoints.
    #[must_use]
    pub const fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    pub(crate) const fn root(&self) -> &PathBuf {
        &self.root
    }

    /// The place of the kdamond whose directory has this number.
    pub(crate) fn slot(&self, kdamond: Ino) -> Arc<Slot> {
        Arc::clone(self.slots().entry(kdamond).or_default())
    }

    /// Every place that was ever used.
    pub(crate) fn all(&self) -> Vec<(Ino, Arc<Slot>)> {
        self.slots()
            .iter()
            .map(|(ino, slot)| (*ino, Arc::clone(slot)))
            .collect()
    }

    /// Does `change` to the directories of kdamonds, all of which have ended and are forgotten with it.
    ///
    /// # Errors
    /// EBUSY: one runs, or is being asked something. What `change` says.
    pub(crate) fn replace_all(&self, change: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let mut slots = self.slots();
        let busy = |slot: &Arc<Slot>| {
            slot.state
                .try_lock()
                .map_or(true, |state| matches!(*state, State::Running(_)))
        };
        if slots.values().any(busy) {
            return Err(Errno::BUSY);
        }
        change()?;
        slots.clear();
        Ok(())
    }

    /// Starts a kdamond on what was built.
    pub(crate) fn start(&self, built: Built) -> Result<Running, Errno> {
        let number = self.slots().values().filter(|slot| slot.tid().is_some()).count();
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let seed = thermo_sys::clock::monotonic().0;
        let mut context = Context::new(built.attrs, seed).map_err(|_| Errno::INVAL)?;
        context.set_intervals_goal(built.goal).map_err(|_| Errno::INVAL)?;
        context.set_schemes(built.schemes).map_err(|_| Errno::INVAL)?;
        let actor = Actor::new(PageoutLimits::default(), false);
        let mut ops = Targets::new(self.root.clone(), (self.looks)(), actor);
        ops.commit(built.rule, built.targets);
        let sink = Listener::new(number, Arc::clone(&self.trace));
        Running::start(number, Parts { context, ops, sink }, built.goal)
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<Ino, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// The thread of its kdamond, while that runs.
    pub fn tid(&self) -> Option<i32> {
        Some(self.tid.load(Ordering::Relaxed)).filter(|tid| *tid > 0)
    }

    /// Does `f` to it, alone.
    pub fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.notice_end();
        let answer = f(&mut state);
        let tid = match &*state {
            State::Running(running) => running.tid(),
            State::Never | State::Ended => 0,
        };
        self.tid.store(tid, Ordering::Relaxed);
        answer
    }

    /// The running kdamond.
    ///
    /// # Errors
    /// EINVAL: it does not run. What `f` says.
    pub fn ask<R>(&self, f: impl FnOnce(&mut Running) -> Result<R, Errno>) -> Result<R, Errno> {
        self.with(|state| match state {
            State::Running(running) => f(running),
            State::Never | State::Ended => Err(Errno::INVAL),
        })
    }
}

impl State {
    /// A kdamond whose targets are all gone has ended, though its thread may take until its next update to see it.
    fn notice_end(&mut self) {
        if let Self::Running(running) = self
            && running.is_over()
            && let Self::Running(running) = std::mem::replace(self, Self::Ended)
        {
            running.stop();
        }
    }

    /// Stops it.
    ///
    /// # Errors
    /// EINVAL: it never ran. EPERM: it does not run any more.
    pub fn stop(&mut self) -> Result<(), Errno> {
        match std::mem::replace(self, Self::Ended) {
            Self::Running(running) => {
                running.stop();
                Ok(())
            }
            Self::Ended => Err(Errno::PERM),
            Self::Never => {
                *self = Self::Never;
                Err(Errno::INVAL)
            }
        }
    }
}

/// Goals of each scheme, as they were staged anew.
pub type Goals = Vec<Vec<Goal>>;
