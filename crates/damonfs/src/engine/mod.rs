//! The engine behind the control files: one kdamond of ours for each directory that was switched on, whichever layout
//! that is part of.
//!
//! Staged values come in, running contexts and what they found come out. Commands of one kdamond are done one after
//! the other, and each in the kdamond's own thread between two of its steps.

mod build;
mod listener;
mod running;
mod scheme;
mod summary;
mod targets;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use thermo_actions::{Actor, PageoutLimits};
use thermo_backends::Tracker;
use thermo_engine::scheme::{Goal, SchemeStats};
use thermo_engine::{Action, Context};
use thermo_runtime::kdamond::Parts;

pub use build::{Built, Rule, Settings, StagedTarget, Watch, aligned, build, target};
pub use listener::Tried;
pub use running::{Found, Running};
pub use scheme::{free_memory_marks, goals_of_all, millis, pattern, weight};
pub use summary::Summary;

use crate::table::Layout;
use crate::trace::Trace;
use crate::tree::Ino;
use listener::Listener;
use targets::Targets;

/// Makes a tracker for a new kdamond.
pub type TrackerFactory = Box<dyn Fn() -> Box<dyn Tracker + Send> + Send + Sync>;

/// Is told a sentence: an errno does not say much, and a warning has no file.
pub type Tell = fn(&str);

/// The directory of a kdamond.
pub type Place = (Layout, Ino);

/// The kdamonds.
pub struct Engine {
    root: PathBuf,
    looks: TrackerFactory,
    /// Whether in-kernel DAMON or the idle-page bitmap clears accessed bits too: as it was before our own control files
    /// covered those of the kernel. A kdamond that asked them would wait for itself.
    others: bool,
    tell: Tell,
    trace: Arc<Trace>,
    slots: Mutex<BTreeMap<Place, Arc<Slot>>>,
    /// Held while one is switched on, so that who comes second sees the first.
    starting: Mutex<()>,
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
    /// It ran, and was stopped or ended with its targets. What its schemes had done by then.
    Ended(Vec<SchemeStats>),
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine for the machine at `root` (`/`), whose kdamonds look as `looks` says. What they warn of, and why one
    /// cannot be switched on, goes to `tell`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>, looks: TrackerFactory, tell: Tell) -> Self {
        let root = root.into();
        Self {
            others: thermo_backends::others_clear_accessed_bits(&root),
            root,
            looks,
            tell,
            trace: Arc::default(),
            slots: Mutex::default(),
            starting: Mutex::default(),
        }
    }

    /// Where kdamonds tell what kernels tell as tracepoints.
    #[must_use]
    pub const fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    /// Tells `text` to whoever looks after the engine.
    pub(crate) fn tell(&self, text: &str) {
        (self.tell)(text);
    }

    pub(crate) const fn root(&self) -> &PathBuf {
        &self.root
    }

    /// The kdamond of this directory.
    pub(crate) fn slot(&self, place: Place) -> Arc<Slot> {
        Arc::clone(self.slots().entry(place).or_default())
    }

    /// Every place of a layout that was ever used.
    pub(crate) fn of(&self, layout: Layout) -> Vec<(Ino, Arc<Slot>)> {
        let slots = self.slots();
        let of_layout = slots.iter().filter(|((of, _), _)| *of == layout);
        of_layout
            .map(|((_, ino), slot)| (*ino, Arc::clone(slot)))
            .collect()
    }

    /// Forgets a place whose directory is gone.
    pub(crate) fn forget(&self, place: Place) {
        self.slots().remove(&place);
    }

    /// Stops every kdamond of a layout.
    pub(crate) fn stop_all(&self, layout: Layout) {
        for (_, slot) in self.of(layout) {
            // One that does not run needs no stopping.
            let _ = slot.with(State::stop);
        }
    }

    /// Does `change` to the directories of a layout, whose kdamonds have all ended and are forgotten with it.
    ///
    /// # Errors
    /// EBUSY: one runs, or is being asked something. What `change` says.
    pub(crate) fn replace_all(
        &self,
        layout: Layout,
        change: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut slots = self.slots();
        let busy = |slot: &Arc<Slot>| {
            slot.state
                .try_lock()
                .map_or(true, |state| matches!(*state, State::Running(_)))
        };
        if slots.iter().any(|((of, _), slot)| *of == layout && busy(slot)) {
            return Err(Errno::BUSY);
        }
        change()?;
        slots.retain(|(of, _), _| *of != layout);
        Ok(())
    }

    /// Starts the kdamond of `place` on what `build` gives.
    ///
    /// # Errors
    /// EBUSY: it runs, or one runs that does not go together with it. What `build` says.
    pub(crate) fn start(
        &self,
        place: Place,
        build: impl FnOnce() -> Result<Built, Errno>,
    ) -> Result<(), Errno> {
        let _alone = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        self.slot(place).with(|state| {
            if matches!(state, State::Running(_)) {
                return Err(Errno::BUSY);
            }
            let built = build()?;
            if self.is_barred(place) {
                return Err(Errno::BUSY);
            }
            *state = State::Running(self.run(built)?);
            Ok(())
        })
    }

    /// Whether one runs that `place` does not go together with: in the kernel debugfs and each of the modules start
    /// exclusively.
    fn is_barred(&self, place: Place) -> bool {
        let slots: Vec<(Place, Arc<Slot>)> = self
            .slots()
            .iter()
            .map(|(place, slot)| (*place, Arc::clone(slot)))
            .collect();
        let together = |other: Layout| other == place.0 && other != Layout::Modules;
        let others = slots.into_iter().filter(|(other, _)| *other != place);
        others
            .filter(|((layout, _), _)| !together(*layout))
            .any(|(_, slot)| slot.runs())
    }

    fn run(&self, built: Built) -> Result<Running, Errno> {
        let number = self.slots().values().filter(|slot| slot.tid().is_some()).count();
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let seed = thermo_kernel::clock::monotonic().0;
        let Settings { attrs, goal, schemes } = built.settings;
        let mut tracker = (self.looks)();
        tracker.fix_others(self.others);
        if schemes.iter().any(|scheme| scheme.action == Action::LruPrio) {
            tracker.keep_active();
        }
        let mut context = Context::new(attrs, seed).map_err(|_| Errno::INVAL)?;
        context.set_intervals_goal(goal).map_err(|_| Errno::INVAL)?;
        context.set_schemes(schemes).map_err(|_| Errno::INVAL)?;
        let actor = Actor::new(PageoutLimits::default(), false);
        let ops = Targets::new(self.root.clone(), built.watch, tracker, actor);
        let sink = Listener::new(number, Arc::clone(&self.trace), self.tell);
        Running::start(number, Parts { context, ops, sink }, goal)
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<Place, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// The thread of its kdamond, while that runs.
    pub fn tid(&self) -> Option<i32> {
        Some(self.tid.load(Ordering::Relaxed)).filter(|tid| *tid > 0)
    }

    /// The same, of a kdamond that may have ended meanwhile: then there is none.
    pub fn tid_now(&self) -> Option<i32> {
        self.runs();
        self.tid()
    }

    /// Does `f` to it, alone.
    pub fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.notice_end();
        let answer = f(&mut state);
        let tid = match &*state {
            State::Running(running) => running.tid(),
            State::Never | State::Ended(_) => 0,
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
            State::Never | State::Ended(_) => Err(Errno::INVAL),
        })
    }

    /// Whether its kdamond runs; one that has ended meanwhile does not.
    pub fn runs(&self) -> bool {
        self.with(|state| matches!(state, State::Running(_)))
    }

    /// What its schemes have done so far, or had when it ended; nothing before it was on.
    pub fn stats(&self) -> Vec<SchemeStats> {
        self.with(|state| match state {
            // One that ends just now has nothing more to tell before the next look.
            State::Running(running) => running.found().map(|found| found.stats).unwrap_or_default(),
            State::Ended(stats) => stats.clone(),
            State::Never => Vec::new(),
        })
    }
}

impl State {
    /// A kdamond whose targets are all gone has ended, though its thread may take until its next update to see it.
    fn notice_end(&mut self) {
        if matches!(self, Self::Running(running) if running.is_over()) {
            // It runs, so it can be stopped.
            let _ = self.stop();
        }
    }

    /// Stops it.
    ///
    /// # Errors
    /// EINVAL: it never ran. EPERM: it does not run any more.
    pub fn stop(&mut self) -> Result<(), Errno> {
        match std::mem::take(self) {
            Self::Running(running) => {
                *self = Self::Ended(running.stop());
                Ok(())
            }
            Self::Ended(stats) => {
                *self = Self::Ended(stats);
                Err(Errno::PERM)
            }
            Self::Never => Err(Errno::INVAL),
        }
    }
}

/// Goals of each scheme, as they were staged anew.
pub type Goals = Vec<Vec<Goal>>;
