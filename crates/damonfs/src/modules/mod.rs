//! The kernel's DAMON modules as directories: `damon_reclaim`, `damon_lru_sort` and `damon_stat`. Names,
//! units and defaults of the parameters are the kernel's.
//!
//! In the kernel a module acts on the whole machine. Here it acts only on the processes given to
//! [`ModuleFiles::new`]. If none were given, `enabled` stays off. As in the kernel, one module runs at a
//! time, and none together with other kdamonds.

mod build;
mod stats;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use thermo_targets::{TargetSpec, TrackedProcesses};

use crate::engine::{ContextConfig, Engine, Settings, Slot, State, Summary, TargetSelection};
use crate::files::{ControlFiles, Write};
use crate::staged::StagedDir;
use crate::table::{Layout, Role};
use crate::tree::{Ino, Tree};
use crate::value;

/// The parameter files of the modules.
#[derive(Debug)]
pub struct ModuleFiles {
    tree: Mutex<Tree>,
    engine: Arc<Engine>,
    /// The processes that modules may act on. `None`: no module can be enabled.
    targets: Option<TargetSpec>,
    /// The last statistics of `damon_stat`.
    last_summary: Mutex<Option<Summary>>,
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

    fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Reclaim, Self::LruSort, Self::Stat];
        all.into_iter().find(|module| module.name() == name)
    }
}

impl ModuleFiles {
    /// Parameter files that control `engine`, with all modules off. Modules may act on `targets`. With
    /// `None`, no module can be enabled.
    #[must_use]
    pub fn new(engine: Arc<Engine>, targets: Option<TargetSpec>) -> Arc<Self> {
        Arc::new(Self {
            tree: Mutex::new(Tree::new(Layout::Modules.root())),
            engine,
            targets,
            last_summary: Mutex::default(),
        })
    }

    fn slot(&self, parameters: Ino) -> Arc<Slot> {
        self.engine.slot((Layout::Modules, parameters))
    }

    fn module(&self, parameters: Ino) -> Result<Module, Errno> {
        let tree = self.tree();
        let dir = tree.node(tree.node(parameters)?.parent())?;
        Module::from_name(dir.name()).ok_or(Errno::NODEV)
    }

    fn settings(&self, parameters: Ino) -> Result<Settings, Errno> {
        let module = self.module(parameters)?;
        let settings = build::settings(module, StagedDir::at(&self.tree(), parameters));
        settings.inspect_err(|_| {
            self.engine.log(&format!(
                "the parameters of {} contradict each other: check its intervals, numbers of regions, monitored \
                 region and watermarks",
                module.name()
            ));
        })
    }

    fn switch(&self, parameters: Ino, on: bool) -> Result<(), Errno> {
        let slot = self.slot(parameters);
        if slot.is_running() == on {
            return Ok(());
        }
        if !on {
            self.save_summary(&slot);
            return slot.with(State::stop);
        }
        self.engine.start((Layout::Modules, parameters), || {
            let targets = self.select_targets()?;
            let settings = self.settings(parameters)?;
            Ok(ContextConfig { settings, targets })
        })
    }

    fn select_targets(&self) -> Result<TargetSelection, Errno> {
        let spec = self.targets.clone().ok_or_else(|| {
            self.engine.log(
                "cannot enable a module: no target was given. Start `thermo fs` with --modules-on PID, \
                 --modules-on CGROUP or, for the whole machine, --system",
            );
            Errno::PERM
        })?;
        let others_may_join = spec.cgroup.is_some() || spec.system || spec.children;
        let pids = (!others_may_join).then(|| spec.pids.clone());
        let members = TrackedProcesses::new(self.engine.root(), spec).map_err(|error| {
            self.engine.log(&error.to_string());
            Errno::INVAL
        })?;
        Ok(TargetSelection::Tracked(Box::new(members), pids))
    }

    /// Saves the current statistics, if the kdamond runs, for reads after its end.
    fn save_summary(&self, slot: &Slot) {
        if let Ok(summary) = slot.with_running(|running| running.summary()) {
            *self.last_summary() = Some(summary);
        }
    }

    fn last_summary(&self) -> MutexGuard<'_, Option<Summary>> {
        self.last_summary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn statistic(&self, parameters: Ino, name: &str) -> Result<String, Errno> {
        let slot = self.slot(parameters);
        if self.module(parameters)? == Module::Stat {
            self.save_summary(&slot);
            return Ok(stats::summary_statistic(name, self.last_summary().as_ref()));
        }
        Ok(stats::scheme_statistic(name, &slot.stats()).to_string())
    }
}

impl ControlFiles for ModuleFiles {
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
            Role::Enabled => if self.slot(parameters).is_running() {
                "Y"
            } else {
                "N"
            }
            .to_owned(),
            Role::Pid => self.slot(parameters).current_tid().unwrap_or(-1).to_string(),
            Role::Statistic => self.statistic(parameters, &name)?,
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
            Role::Enabled => self.switch(parameters, value::parse_bool(write.text)?)?,
            Role::CommitInputs => {
                // Takes effect at once, so the file always reads as N.
                let slot = self.slot(parameters);
                if value::parse_bool(write.text)? && slot.is_running() {
                    let settings = self.settings(parameters)?;
                    slot.with_running(|running| running.apply_settings(settings))?;
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
