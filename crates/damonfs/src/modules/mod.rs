//! The kernel's ready-made modules as directories: `damon_reclaim`, `damon_lru_sort` and `damon_stat`, each with its
//! parameters by their names, units and defaults.
//!
//! In the kernel a module acts on the whole machine. Here it acts on what was said when the files were made ([`Modules::new`])
//! and on nothing else; where nothing was said, `enabled` stays off. As in the kernel one of them runs at a time, and
//! none beside other kdamonds.

mod build;
mod stats;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use thermo_targets::{TargetSpec, TrackedProcesses};

use crate::engine::{Built, Engine, Settings, Slot, State, Summary, Watch};
use crate::files::{ControlFiles, Write};
use crate::staged::Staged;
use crate::table::{Layout, Role};
use crate::tree::{Ino, Tree};
use crate::value;

/// The modules' files.
#[derive(Debug)]
pub struct Modules {
    tree: Mutex<Tree>,
    engine: Arc<Engine>,
    /// Whom they may act on; none: nobody.
    reach: Option<TargetSpec>,
    /// What `damon_stat` saw last.
    seen: Mutex<Option<Summary>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Module {
    Reclaim,
    LruSort,
    Stat,
}

impl Module {
    const fn name(self) -> &'static str {
        match self {
            Self::Reclaim => "damon_reclaim",
            Self::LruSort => "damon_lru_sort",
            Self::Stat => "damon_stat",
        }
    }

    fn called(name: &str) -> Option<Self> {
        let all = [Self::Reclaim, Self::LruSort, Self::Stat];
        all.into_iter().find(|module| module.name() == name)
    }
}

impl Modules {
    /// The modules over `engine`, all off, each to act on `reach`; none: on nobody.
    #[must_use]
    pub fn new(engine: Arc<Engine>, reach: Option<TargetSpec>) -> Arc<Self> {
        Arc::new(Self {
            tree: Mutex::new(Tree::new(Layout::Modules.root())),
            engine,
            reach,
            seen: Mutex::default(),
        })
    }

    fn slot(&self, parameters: Ino) -> Arc<Slot> {
        self.engine.slot((Layout::Modules, parameters))
    }

    fn module(&self, parameters: Ino) -> Result<Module, Errno> {
        let tree = self.tree();
        let dir = tree.node(tree.node(parameters)?.parent())?;
        Module::called(dir.name()).ok_or(Errno::NODEV)
    }

    fn settings(&self, parameters: Ino) -> Result<Settings, Errno> {
        let module = self.module(parameters)?;
        let settings = build::settings(module, Staged::at(&self.tree(), parameters));
        settings.inspect_err(|_| {
            self.engine.tell(&format!(
                "the parameters of {} contradict each other: look at its intervals, numbers of regions, monitored \
                 region and watermarks",
                module.name()
            ));
        })
    }

    fn switch(&self, parameters: Ino, on: bool) -> Result<(), Errno> {
        let slot = self.slot(parameters);
        if slot.runs() == on {
            return Ok(());
        }
        if !on {
            self.look(&slot);
            return slot.with(State::stop);
        }
        self.engine.start((Layout::Modules, parameters), || {
            let watch = self.watch()?;
            let settings = self.settings(parameters)?;
            Ok(Built { settings, watch })
        })
    }

    /// Those that modules may act on.
    fn watch(&self) -> Result<Watch, Errno> {
        let spec = self.reach.clone().ok_or_else(|| {
            self.engine.tell(
                "a module stays off, since nothing was said that it may act on: start `thermo fs` with \
                 --modules-on PID, --modules-on CGROUP or, for the whole machine, --system",
            );
            Errno::PERM
        })?;
        let others_may_join = spec.cgroup.is_some() || spec.system || spec.children;
        let pids = (!others_may_join).then(|| spec.pids.clone());
        let members = TrackedProcesses::new(self.engine.root(), spec).map_err(|error| {
            self.engine.tell(&error.to_string());
            Errno::INVAL
        })?;
        Ok(Watch::Named(Box::new(members), pids))
    }

    /// Keeps what is seen now for those who ask later.
    fn look(&self, slot: &Slot) {
        if let Ok(summary) = slot.ask(|running| running.summary()) {
            *self.seen() = Some(summary);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Option<Summary>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, parameters: Ino, name: &str) -> Result<String, Errno> {
        let slot = self.slot(parameters);
        if self.module(parameters)? == Module::Stat {
            self.look(&slot);
            return Ok(stats::of_summary(name, self.seen().as_ref()));
        }
        Ok(stats::of_schemes(name, &slot.stats()).to_string())
    }
}

impl ControlFiles for Modules {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, ino: Ino) -> Result<String, Errno> {
        let (role, parameters, name, staged) = {
            let tree = self.tree();
            let node = tree.node(ino)?;
            (
                node.role(),
                node.parent(),
                node.name().to_owned(),
                tree.show(ino)?,
            )
        };
        let line = match role {
            Role::Enabled => if self.slot(parameters).runs() { "Y" } else { "N" }.to_owned(),
            Role::Pid => self.slot(parameters).tid_now().unwrap_or(-1).to_string(),
            Role::Told => self.told(parameters, &name)?,
            _ => staged,
        };
        Ok(line + "\n")
    }

    fn write(&self, ino: Ino, write: Write<'_>) -> Result<usize, Errno> {
        if write.text.is_empty() {
            return Ok(0);
        }
        let (role, parameters) = {
            let tree = self.tree();
            let node = tree.node(ino)?;
            (node.role(), node.parent())
        };
        match role {
            Role::Enabled => self.switch(parameters, value::boolean(write.text)?)?,
            Role::CommitInputs => {
                // What is taken over at once is never seen to be asked for.
                let slot = self.slot(parameters);
                if value::boolean(write.text)? && slot.runs() {
                    let settings = self.settings(parameters)?;
                    slot.ask(|running| running.change(settings))?;
                }
            }
            _ => self.tree().store(ino, write.text)?,
        }
        Ok(write.text.len())
    }

    fn stop_all(&self) {
        self.engine.stop_all(Layout::Modules);
    }
}
