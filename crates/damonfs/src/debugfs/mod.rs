//! The control files of `/sys/kernel/debug/damon`, as in Linux 5.15 to 6.13, for the same engine.
//!
//! Files hold rows of numbers. The root is a context, and `mk_contexts` creates more. `monitor_on` starts and
//! stops all contexts together. Nothing can be written while they run. The kernel accepts a write up to the
//! first incomplete region or scheme and ignores the rest; here such writes are errors. `target_ids` ignores
//! the rest like the kernel, because the kernel's selftests check it.

mod build;

use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use thermo_engine::scheme::SchemeStats;

use crate::engine::{self, Engine, Slot, State};
use crate::files::{ControlFiles, Write};
use crate::staged::StagedDir;
use crate::table::{DEBUGFS_CONTEXT, Layout, Role};
use crate::tree::{Ino, Tree};
use crate::value::{self, Value};

/// Maximum number of targets of a context. As in the kernel, further targets are ignored.
const MAX_TARGETS: usize = 32;

/// Control files with the layout of debugfs.
#[derive(Debug)]
pub struct DebugfsFiles {
    tree: Mutex<Tree>,
    engine: Arc<Engine>,
    /// Held during each write, so that nothing is staged while contexts are switched on.
    write_lock: Mutex<()>,
}

impl DebugfsFiles {
    /// Control files that control `engine`, with nothing staged.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Arc<Self> {
        Arc::new(Self {
            tree: Mutex::new(Tree::new(Layout::Debugfs.root())),
            engine,
            write_lock: Mutex::default(),
        })
    }

    fn slot(&self, context: Ino) -> Arc<Slot> {
        self.engine.slot((Layout::Debugfs, context))
    }

    fn contexts(&self) -> Vec<Ino> {
        let tree = self.tree();
        let is_dir = |ino: &Ino| tree.node(*ino).is_ok_and(|node| node.is_dir());
        let entries = tree.list(Tree::ROOT).into_iter().flatten();
        let created = entries.map(|(_, ino)| ino).filter(is_dir);
        iter::once(Tree::ROOT).chain(created).collect()
    }

    fn is_on(&self) -> bool {
        self.contexts()
            .into_iter()
            .any(|context| self.slot(context).is_running())
    }

    /// The rows of the file `schemes`, each followed by the scheme's statistics.
    fn schemes(&self, context: Ino) -> Result<String, Errno> {
        let stats = self.slot(context).stats();
        let tree = self.tree();
        tree.node(context)?;
        let rows = StagedDir::at(&tree, context).rows("schemes").iter();
        let zeros = iter::repeat(SchemeStats::default());
        let lines = rows.zip(stats.into_iter().chain(zeros)).map(|(row, stats)| {
            let stats = [
                stats.nr_tried,
                stats.sz_tried.0,
                stats.nr_applied,
                stats.sz_applied.0,
                stats.qt_exceeds,
            ];
            let numbers = row.iter().chain(&stats).map(u64::to_string);
            numbers.collect::<Vec<_>>().join(" ") + "\n"
        });
        Ok(lines.collect())
    }

    fn stage(&self, ino: Ino, context: Ino, role: Role, text: &[u8]) -> Result<(), Errno> {
        let value = self.parse(ino, context, role, text)?;
        if self.slot(context).is_running() {
            return Err(Errno::BUSY);
        }
        let mut tree = self.tree();
        tree.set(ino, value);
        if role == Role::TargetIds {
            // The staged regions belonged to the previous targets.
            tree.set_file(context, "init_regions", Value::Rows(Vec::new()));
        }
        Ok(())
    }

    /// Parses and checks text written to a file.
    fn parse(&self, ino: Ino, context: Ino, role: Role, text: &[u8]) -> Result<Value, Errno> {
        if role == Role::TargetIds {
            return target_ids(text).map(Value::Text);
        }
        let tree = self.tree();
        let mut value = tree.node(ino)?.parse(text)?;
        if let Value::Rows(rows) = &mut value {
            match role {
                Role::Attrs => {
                    build::attrs(rows.first().ok_or(Errno::INVAL)?)?;
                }
                Role::Schemes => {
                    *rows = std::mem::take(rows)
                        .into_iter()
                        .map(build::pad_scheme_row)
                        .collect();
                    rows.iter().try_for_each(|row| build::scheme(row).map(drop))?;
                }
                _ => {
                    let targets = StagedDir::at(&tree, context).text("target_ids");
                    build::check_regions(rows, build::pids(targets).len())?;
                }
            }
        }
        Ok(value)
    }

    fn switch(&self, word: &str) -> Result<(), Errno> {
        match word {
            "on" => self.switch_on(),
            "off" => self.switch_off(),
            _ => Err(Errno::INVAL),
        }
    }

    fn switch_on(&self) -> Result<(), Errno> {
        if self.is_on() {
            return Err(Errno::BUSY);
        }
        let contexts = self.contexts();
        let configs: Vec<engine::ContextConfig> = {
            let tree = self.tree();
            let build = |context: &Ino| build::build(StagedDir::at(&tree, *context));
            contexts.iter().map(build).collect::<Result<_, _>>()?
        };
        let started = contexts
            .into_iter()
            .zip(configs)
            .try_for_each(|(context, config)| self.engine.start((Layout::Debugfs, context), || Ok(config)));
        if started.is_err() {
            self.stop_all();
        }
        started
    }

    /// Stops all contexts and clears their targets, as the kernel does, because pids may be reused.
    fn switch_off(&self) -> Result<(), Errno> {
        let stop = |context: &Ino| self.slot(*context).with(State::stop).is_ok();
        let stopped: Vec<Ino> = self.contexts().into_iter().filter(stop).collect();
        let mut tree = self.tree();
        for context in &stopped {
            tree.set_file(*context, "target_ids", Value::Text(String::new()));
            tree.set_file(*context, "init_regions", Value::Rows(Vec::new()));
        }
        if stopped.is_empty() {
            Err(Errno::PERM)
        } else {
            Ok(())
        }
    }

    fn make_context(&self, name: &str) -> Result<(), Errno> {
        if self.is_on() {
            return Err(Errno::BUSY);
        }
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        if name.contains('/') || matches!(name, "." | "..") {
            return Err(Errno::ACCESS);
        }
        self.tree().create_dir(name, &DEBUGFS_CONTEXT).map(drop)
    }

    fn remove_context(&self, name: &str) -> Result<(), Errno> {
        if self.is_on() {
            return Err(Errno::BUSY);
        }
        let mut tree = self.tree();
        let context = tree.lookup(Tree::ROOT, name)?;
        if !tree.node(context)?.is_dir() {
            return Err(Errno::INVAL);
        }
        tree.remove(context);
        drop(tree);
        self.engine.remove_slot((Layout::Debugfs, context));
        Ok(())
    }
}

impl ControlFiles for DebugfsFiles {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, ino: Ino) -> Result<String, Errno> {
        let (role, context, staged) = {
            let tree = self.tree();
            let node = tree.node(ino)?;
            (node.role(), node.parent(), tree.show(ino)?)
        };
        let line = match role {
            Role::Schemes => return self.schemes(context),
            Role::InitRegions if staged.is_empty() => return Ok(staged),
            Role::MakeContext | Role::RemoveContext => return Err(Errno::INVAL),
            Role::MonitorOn => if self.is_on() { "on" } else { "off" }.to_owned(),
            Role::KdamondPid => {
                let tid = self.slot(context).current_tid();
                tid.map_or_else(|| "none".to_owned(), |tid| tid.to_string())
            }
            _ => staged,
        };
        Ok(line + "\n")
    }

    /// A value has to be written in one piece: a write at an offset is EINVAL.
    fn write(&self, ino: Ino, write: Write<'_>) -> Result<usize, Errno> {
        if write.text.is_empty() {
            return Ok(0);
        }
        if write.offset > 0 {
            return Err(Errno::INVAL);
        }
        let _guard = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let (role, context) = {
            let tree = self.tree();
            let node = tree.node(ino)?;
            (node.role(), node.parent())
        };
        let text = value::until_nul(write.text);
        match role {
            Role::MonitorOn => self.switch(first_word(text)?)?,
            Role::MakeContext => self.make_context(first_word(text)?)?,
            Role::RemoveContext => self.remove_context(first_word(text)?)?,
            Role::KdamondPid => return Err(Errno::INVAL),
            _ => self.stage(ino, context, role, text)?,
        }
        Ok(write.text.len())
    }

    fn stop_all(&self) {
        self.engine.stop_all(Layout::Debugfs);
    }
}

fn first_word(text: &[u8]) -> Result<&str, Errno> {
    let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
    text.split_ascii_whitespace().next().ok_or(Errno::INVAL)
}

/// Parses pids up to the first word that is not a number. All these processes must exist. `paddr` is not
/// supported.
fn target_ids(text: &[u8]) -> Result<String, Errno> {
    let text = String::from_utf8_lossy(text);
    if text.trim_end() == "paddr" {
        return Err(Errno::INVAL);
    }
    let mut pids = build::pids(&text);
    pids.truncate(MAX_TARGETS);
    for pid in &pids {
        engine::open_target(0, *pid)?;
    }
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    Ok(pids.join(" "))
}
