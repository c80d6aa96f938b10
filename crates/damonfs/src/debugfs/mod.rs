//! The control files of `/sys/kernel/debug/damon`, as they were from Linux 5.15 to 6.13, over the same engine.
//!
//! Files hold rows of numbers. The root is a context, and `mk_contexts` makes more; `monitor_on` starts and stops all
//! of them together, and nothing can be written while they run. What the kernel reads as far as it makes sense and
//! forgets the rest of (regions and schemes that are not whole) is refused here; but for `target_ids`, where its
//! self-tests want that.

mod build;

use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use thermo_engine::scheme::SchemeStats;

use crate::engine::{self, Engine, Slot, State};
use crate::files::{ControlFiles, Write};
use crate::staged::Staged;
use crate::table::{EARLY_CONTEXT, Layout, Role};
use crate::tree::{Ino, Tree};
use crate::value::{self, Value};

/// The most targets of a context; the kernel leaves further ones out.
const MOST_TARGETS: usize = 32;

/// The control files.
#[derive(Debug)]
pub struct Early {
    tree: Mutex<Tree>,
    engine: Arc<Engine>,
    /// Held by whoever writes, so that nothing is staged while contexts are switched on.
    writing: Mutex<()>,
}

impl Early {
    /// Control files over `engine`, with nothing staged.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Arc<Self> {
        Arc::new(Self {
            tree: Mutex::new(Tree::new(Layout::Debugfs.root())),
            engine,
            writing: Mutex::default(),
        })
    }

    fn slot(&self, context: Ino) -> Arc<Slot> {
        self.engine.slot((Layout::Debugfs, context))
    }

    fn contexts(&self) -> Vec<Ino> {
        let tree = self.tree();
        let is_dir = |ino: &Ino| tree.node(*ino).is_ok_and(|node| node.is_dir());
        let names = tree.list(Tree::ROOT).into_iter().flatten();
        let made = names.map(|(_, ino)| ino).filter(is_dir);
        iter::once(Tree::ROOT).chain(made).collect()
    }

    fn is_on(&self) -> bool {
        self.contexts()
            .into_iter()
            .any(|context| self.slot(context).runs())
    }

    /// Schemes with what they have done.
    fn schemes(&self, context: Ino) -> Result<String, Errno> {
        let stats = self.slot(context).stats();
        let tree = self.tree();
        tree.node(context)?;
        let rows = Staged::at(&tree, context).rows("schemes").iter();
        let nothing = iter::repeat(SchemeStats::default());
        let lines = rows.zip(stats.into_iter().chain(nothing)).map(|(row, stats)| {
            let done = [
                stats.nr_tried,
                stats.sz_tried.0,
                stats.nr_applied,
                stats.sz_applied.0,
                stats.qt_exceeds,
            ];
            let numbers = row.iter().chain(&done).map(u64::to_string);
            numbers.collect::<Vec<_>>().join(" ") + "\n"
        });
        Ok(lines.collect())
    }

    fn stage(&self, ino: Ino, context: Ino, role: Role, text: &[u8]) -> Result<(), Errno> {
        let staged = self.meant(ino, context, role, text)?;
        if self.slot(context).runs() {
            return Err(Errno::BUSY);
        }
        let mut tree = self.tree();
        tree.set(ino, staged);
        if role == Role::TargetIds {
            // They were the regions of others.
            tree.fill(context, "init_regions", Value::Rows(Vec::new()));
        }
        Ok(())
    }

    /// What a write means, if it can be meant.
    fn meant(&self, ino: Ino, context: Ino, role: Role, text: &[u8]) -> Result<Value, Errno> {
        if role == Role::TargetIds {
            return target_ids(text).map(Value::Text);
        }
        let tree = self.tree();
        let mut rows = tree.node(ino)?.parse(text)?;
        if let Value::Rows(rows) = &mut rows {
            match role {
                Role::Attrs => {
                    build::attrs(rows.first().ok_or(Errno::INVAL)?)?;
                }
                Role::Schemes => {
                    *rows = std::mem::take(rows).into_iter().map(build::completed).collect();
                    rows.iter().try_for_each(|row| build::scheme(row).map(drop))?;
                }
                _ => {
                    let targets = Staged::at(&tree, context).text("target_ids");
                    build::check_regions(rows, build::pids(targets).len())?;
                }
            }
        }
        Ok(rows)
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
        let built: Vec<engine::Built> = {
            let tree = self.tree();
            let build = |context: &Ino| build::build(Staged::at(&tree, *context));
            contexts.iter().map(build).collect::<Result<_, _>>()?
        };
        let started = contexts
            .into_iter()
            .zip(built)
            .try_for_each(|(context, built)| self.engine.start((Layout::Debugfs, context), || Ok(built)));
        if started.is_err() {
            self.stop_all();
        }
        started
    }

    /// What ran has no targets any more, as in the kernel: their numbers may pass to others.
    fn switch_off(&self) -> Result<(), Errno> {
        let stop = |context: &Ino| self.slot(*context).with(State::stop).is_ok();
        let stopped: Vec<Ino> = self.contexts().into_iter().filter(stop).collect();
        let mut tree = self.tree();
        for context in &stopped {
            tree.fill(*context, "target_ids", Value::Text(String::new()));
            tree.fill(*context, "init_regions", Value::Rows(Vec::new()));
        }
        if stopped.is_empty() {
            Err(Errno::PERM)
        } else {
            Ok(())
        }
    }

    fn make(&self, name: &str) -> Result<(), Errno> {
        if self.is_on() {
            return Err(Errno::BUSY);
        }
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        if name.contains('/') || matches!(name, "." | "..") {
            return Err(Errno::ACCESS);
        }
        self.tree().make(name, &EARLY_CONTEXT).map(drop)
    }

    fn remove(&self, name: &str) -> Result<(), Errno> {
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
        self.engine.forget((Layout::Debugfs, context));
        Ok(())
    }
}

impl ControlFiles for Early {
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
                let tid = self.slot(context).tid_now();
                tid.map_or_else(|| "none".to_owned(), |tid| tid.to_string())
            }
            _ => staged,
        };
        Ok(line + "\n")
    }

    /// All at once: what is written behind the beginning of a file is refused.
    fn write(&self, ino: Ino, write: Write<'_>) -> Result<usize, Errno> {
        if write.text.is_empty() {
            return Ok(0);
        }
        if write.offset > 0 {
            return Err(Errno::INVAL);
        }
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (role, context) = {
            let tree = self.tree();
            let node = tree.node(ino)?;
            (node.role(), node.parent())
        };
        let text = value::until_nul(write.text);
        match role {
            Role::MonitorOn => self.switch(word(text)?)?,
            Role::MakeContext => self.make(word(text)?)?,
            Role::RemoveContext => self.remove(word(text)?)?,
            Role::KdamondPid => return Err(Errno::INVAL),
            _ => self.stage(ino, context, role, text)?,
        }
        Ok(write.text.len())
    }

    fn stop_all(&self) {
        self.engine.stop_all(Layout::Debugfs);
    }
}

/// The first word of a write.
fn word(text: &[u8]) -> Result<&str, Errno> {
    let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
    text.split_ascii_whitespace().next().ok_or(Errno::INVAL)
}

/// Numbers of processes up to what is none, all of which must be there. Physical memory (`paddr`) cannot be watched.
fn target_ids(text: &[u8]) -> Result<String, Errno> {
    let text = String::from_utf8_lossy(text);
    if text.trim_end() == "paddr" {
        return Err(Errno::INVAL);
    }
    let mut pids = build::pids(&text);
    pids.truncate(MOST_TARGETS);
    for pid in &pids {
        engine::target(0, *pid)?;
    }
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    Ok(pids.join(" "))
}
