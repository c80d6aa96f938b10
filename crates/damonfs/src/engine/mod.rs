//! The engine behind the control files: one kdamond for each directory that was switched on, of any layout.
//!
//! Input: staged values. Output: running contexts and their status. Commands to one kdamond run one after the
//! other, each in the kdamond's thread between two of its steps.

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
use thermo_runtime::Vaddr;
use thermo_runtime::kdamond::Parts;

pub use build::{
    ContextConfig, RangeSource, Settings, StagedTarget, TargetSelection, build, open_target, page_aligned,
};
pub use listener::TriedRegions;
pub use running::{Running, Status};
pub use scheme::{all_goals, free_memory_watermarks, millis, pattern, weight};
pub use summary::Summary;

use crate::table::Layout;
use crate::trace::Trace;
use crate::tree::Ino;
use listener::Listener;
use targets::Targets;

/// Creates a tracker for a new kdamond.
pub type TrackerFactory = Box<dyn Fn() -> Box<dyn Tracker + Send> + Send + Sync>;

/// Prints a message: reasons that an errno does not express, and warnings of kdamonds.
pub type LogFn = fn(&str);

/// The directory of a kdamond.
pub type SlotKey = (Layout, Ino);

/// The kdamonds.
pub struct Engine {
    root: PathBuf,
    new_tracker: TrackerFactory,
    /// True if in-kernel DAMON or the idle-page bitmap also clears accessed bits. Checked before these
    /// control files cover those of the kernel: a kdamond that read its own control files would wait for
    /// itself.
    others_clear_bits: bool,
    log: LogFn,
    trace: Arc<Trace>,
    slots: Mutex<BTreeMap<SlotKey, Arc<Slot>>>,
    /// Held while a kdamond is switched on, so that two that exclude each other cannot start at once.
    start_lock: Mutex<()>,
}

/// The slot for the kdamond of one directory.
#[derive(Default)]
pub struct Slot {
    /// The thread id while the kdamond runs, 0 otherwise. Readable while a command holds `state`.
    tid: AtomicI32,
    state: Mutex<State>,
}

/// The state of a slot.
#[derive(Default)]
pub enum State {
    /// The kdamond was never on.
    #[default]
    NeverStarted,
    /// The kdamond runs.
    Running(Running),
    /// The kdamond was stopped, or all targets ended. The final statistics of its schemes.
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
    /// An engine for the machine at `root` (`/`). `new_tracker` creates the tracker of each kdamond. Warnings
    /// of kdamonds, and the reasons why a kdamond cannot start, go to `log`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>, new_tracker: TrackerFactory, log: LogFn) -> Self {
        let root = root.into();
        Self {
            others_clear_bits: thermo_backends::other_monitors_exist(&root),
            root,
            new_tracker,
            log,
            trace: Arc::default(),
            slots: Mutex::default(),
            start_lock: Mutex::default(),
        }
    }

    /// The events that the kernel reports as tracepoints.
    #[must_use]
    pub const fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    /// Prints a message.
    pub(crate) fn log(&self, text: &str) {
        (self.log)(text);
    }

    pub(crate) const fn root(&self) -> &PathBuf {
        &self.root
    }

    /// The slot of this directory, created on first use.
    pub(crate) fn slot(&self, key: SlotKey) -> Arc<Slot> {
        Arc::clone(self.slots().entry(key).or_default())
    }

    /// All slots of a layout.
    pub(crate) fn slots_of(&self, layout: Layout) -> Vec<(Ino, Arc<Slot>)> {
        let slots = self.slots();
        let of_layout = slots.iter().filter(|((other, _), _)| *other == layout);
        of_layout
            .map(|((_, ino), slot)| (*ino, Arc::clone(slot)))
            .collect()
    }

    /// Removes the slot of a directory that is gone.
    pub(crate) fn remove_slot(&self, key: SlotKey) {
        self.slots().remove(&key);
    }

    /// Stops every kdamond of a layout.
    pub(crate) fn stop_all(&self, layout: Layout) {
        for (_, slot) in self.slots_of(layout) {
            // Fails only for a kdamond that does not run.
            let _ = slot.with(State::stop);
        }
    }

    /// Replaces all kdamond directories of a layout by calling `change`, and removes their slots.
    ///
    /// # Errors
    /// EBUSY: a kdamond runs or executes a command. Errors of `change`.
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
        if slots
            .iter()
            .any(|((other, _), slot)| *other == layout && busy(slot))
        {
            return Err(Errno::BUSY);
        }
        change()?;
        slots.retain(|(other, _), _| *other != layout);
        Ok(())
    }

    /// Starts the kdamond of `key` with the configuration that `build` returns.
    ///
    /// # Errors
    /// EBUSY: the kdamond runs, or another one that excludes it. Errors of `build`.
    pub(crate) fn start(
        &self,
        key: SlotKey,
        build: impl FnOnce() -> Result<ContextConfig, Errno>,
    ) -> Result<(), Errno> {
        let _guard = self.start_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.slot(key).with(|state| {
            if matches!(state, State::Running(_)) {
                return Err(Errno::BUSY);
            }
            let config = build()?;
            if self.is_excluded(key) {
                return Err(Errno::BUSY);
            }
            *state = State::Running(self.run(config)?);
            Ok(())
        })
    }

    /// Returns true if a running kdamond excludes that of `key`. In the kernel debugfs and each module run
    /// alone.
    fn is_excluded(&self, key: SlotKey) -> bool {
        let slots: Vec<(SlotKey, Arc<Slot>)> = self
            .slots()
            .iter()
            .map(|(key, slot)| (*key, Arc::clone(slot)))
            .collect();
        let may_coexist = |other: Layout| other == key.0 && other != Layout::Modules;
        let others = slots.into_iter().filter(|(other, _)| *other != key);
        others
            .filter(|((layout, _), _)| !may_coexist(*layout))
            .any(|(_, slot)| slot.is_running())
    }

    fn run(&self, config: ContextConfig) -> Result<Running, Errno> {
        let number = self.slots().values().filter(|slot| slot.tid().is_some()).count();
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let seed = thermo_kernel::clock::monotonic().0;
        let Settings { attrs, goal, schemes } = config.settings;
        let mut tracker = (self.new_tracker)();
        tracker.assume_other_monitors(self.others_clear_bits);
        if schemes.iter().any(|scheme| scheme.action == Action::LruPrio) {
            tracker.keep_active_pages();
        }
        let mut context = Context::new(attrs, seed).map_err(|_| Errno::INVAL)?;
        context.set_intervals_goal(goal).map_err(|_| Errno::INVAL)?;
        context.set_schemes(schemes).map_err(|_| Errno::INVAL)?;
        let actor = Actor::new(PageoutLimits::default(), false);
        let targets = Targets::new(&self.root, config.targets);
        let ops = Vaddr::new(&self.root, targets, tracker, actor).without_damon_files();
        let sink = Listener::new(number, Arc::clone(&self.trace), self.log);
        Running::start(number, Parts { context, ops, sink }, goal)
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<SlotKey, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// The thread id of the kdamond, as of the last command or check.
    pub fn tid(&self) -> Option<i32> {
        Some(self.tid.load(Ordering::Relaxed)).filter(|tid| *tid > 0)
    }

    /// The thread id of the kdamond. `None` if the kdamond has ended.
    pub fn current_tid(&self) -> Option<i32> {
        self.is_running();
        self.tid()
    }

    /// Calls `f` with the locked, current state.
    pub fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.detect_end();
        let result = f(&mut state);
        let tid = match &*state {
            State::Running(running) => running.tid(),
            State::NeverStarted | State::Ended(_) => 0,
        };
        self.tid.store(tid, Ordering::Relaxed);
        result
    }

    /// Calls `f` with the running kdamond.
    ///
    /// # Errors
    /// EINVAL: the kdamond does not run. Errors of `f`.
    pub fn with_running<R>(&self, f: impl FnOnce(&mut Running) -> Result<R, Errno>) -> Result<R, Errno> {
        self.with(|state| match state {
            State::Running(running) => f(running),
            State::NeverStarted | State::Ended(_) => Err(Errno::INVAL),
        })
    }

    /// Returns true if the kdamond runs and has targets left.
    pub fn is_running(&self) -> bool {
        self.with(|state| matches!(state, State::Running(_)))
    }

    /// Statistics of the schemes: current, or final if the kdamond has ended. Empty before the first start.
    pub fn stats(&self) -> Vec<SchemeStats> {
        self.with(|state| match state {
            // Fails for a kdamond that is ending. The next call returns its final statistics.
            State::Running(running) => running.status().map(|status| status.stats).unwrap_or_default(),
            State::Ended(stats) => stats.clone(),
            State::NeverStarted => Vec::new(),
        })
    }
}

impl State {
    /// Stops a kdamond whose targets have all ended. Its thread may notice only at its next update.
    fn detect_end(&mut self) {
        if matches!(self, Self::Running(running) if running.has_ended()) {
            // Cannot fail: the state is `Running`.
            let _ = self.stop();
        }
    }

    /// Stops the kdamond.
    ///
    /// # Errors
    /// EINVAL: the kdamond never ran. EPERM: the kdamond has ended.
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
            Self::NeverStarted => Err(Errno::INVAL),
        }
    }
}

/// Quota goals of each scheme, in the order of schemes.
pub type Goals = Vec<Vec<Goal>>;
