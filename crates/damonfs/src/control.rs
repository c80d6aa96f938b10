//! The control files of `/sys/kernel/mm/damon`: the staged tree, and the files in it that do something.
//!
//! Reading never fails for being busy: what a command is doing meanwhile is told by the next read.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use thermo_engine::sink::TriedRegion;

use crate::engine::{self, Engine, Found, Slot, State, Tried};
use crate::files::{ControlFiles, GivenUp, Write};
use crate::staged::Staged;
use crate::table::{Layout, Role, STATE_COMMANDS};
use crate::tree::{Ino, Tree};
use crate::value::{self, Value};

/// How often it is looked whether a kdamond has ended, or its files are to be refreshed.
const TICK: Duration = Duration::from_millis(50);
/// The kernel hands at most a page to a file at a time; the rest of a longer write is another one.
const PAGE: usize = 4096;
/// The operations there are: what watches processes. Physical memory cannot be watched from here.
const OPERATIONS: &str = "vaddr\nfvaddr";

/// The control files.
#[derive(Debug)]
pub struct Control {
    tree: Mutex<Tree>,
    engine: Arc<Engine>,
}

/// How much of the tried regions is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Regions,
    Bytes,
}

impl ControlFiles for Control {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, ino: Ino) -> Result<String, Errno> {
        let tree = self.tree();
        let node = tree.node(ino)?;
        let (role, parent) = (node.role(), node.parent());
        let mut text = match role {
            Role::Operations => OPERATIONS.to_owned(),
            Role::State | Role::Pid => {
                drop(tree);
                let tid = self.slot(parent).tid();
                match (role, tid) {
                    (Role::State, Some(_)) => "on".to_owned(),
                    (Role::State, None) => "off".to_owned(),
                    (_, tid) => tid.unwrap_or(-1).to_string(),
                }
            }
            _ => tree.show(ino)?,
        };
        text.push('\n');
        Ok(text)
    }

    fn write(&self, ino: Ino, write: Write<'_>) -> Result<usize, Errno> {
        if write.text.is_empty() {
            return Ok(0);
        }
        let text = &write.text[..write.text.len().min(PAGE)];
        let (role, parent) = {
            let tree = self.tree();
            let node = tree.node(ino)?;
            (node.role(), node.parent())
        };
        match role {
            Role::State => self.command(parent, value::word(text, &STATE_COMMANDS)?, write.given_up)?,
            Role::Kdamonds => self
                .engine
                .replace_all(Layout::Sysfs, || self.tree().store(ino, text))?,
            _ => self.tree().store(ino, text)?,
        }
        Ok(text.len())
    }

    fn stop_all(&self) {
        self.engine.stop_all(Layout::Sysfs);
    }
}

impl Control {
    /// Control files over `engine`, with nothing staged.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn new(engine: Arc<Engine>) -> std::io::Result<Arc<Self>> {
        let tree = Mutex::new(Tree::new(Layout::Sysfs.root()));
        let control = Arc::new(Self { tree, engine });
        let watched = Arc::downgrade(&control);
        thread::Builder::new()
            .name("damonfs".to_owned())
            .spawn(move || tend(&watched))?;
        Ok(control)
    }

    /// The kdamond of a directory.
    fn slot(&self, kdamond: Ino) -> Arc<Slot> {
        self.engine.slot((Layout::Sysfs, kdamond))
    }

    fn command(&self, kdamond: Ino, command: &str, given_up: GivenUp<'_>) -> Result<(), Errno> {
        let slot = self.slot(kdamond);
        if command == "off" {
            return slot.with(State::stop);
        }
        let context = self.context(kdamond)?;
        match command {
            "on" => self.start(kdamond, context),
            "commit" => slot.ask(|running| running.commit(self.build(context)?)),
            "commit_schemes_quota_goals" => {
                let goals = engine::goals_of_all(Staged::at(&self.tree(), context).dir("schemes"));
                slot.ask(|running| running.commit_goals(goals))
            }
            "update_schemes_tried_regions" => self.update_tried(context, &slot, Wanted::Regions, given_up),
            "update_schemes_tried_bytes" => self.update_tried(context, &slot, Wanted::Bytes, given_up),
            "clear_schemes_tried_regions" => {
                self.clear_tried(context);
                Ok(())
            }
            update => {
                let found = slot.ask(|running| running.found())?;
                self.fill(context, &found, update);
                Ok(())
            }
        }
    }

    /// The one context there has to be.
    fn context(&self, kdamond: Ino) -> Result<Ino, Errno> {
        let tree = self.tree();
        let contexts = tree.lookup(kdamond, "contexts").map_err(|_| Errno::NODEV)?;
        tree.lookup(contexts, "0").map_err(|_| Errno::INVAL)
    }

    fn build(&self, context: Ino) -> Result<engine::Built, Errno> {
        let tree = self.tree();
        // It may have been replaced meanwhile.
        tree.node(context)?;
        engine::build(self.engine.root(), Staged::at(&tree, context))
    }

    fn start(&self, kdamond: Ino, context: Ino) -> Result<(), Errno> {
        self.engine.start((Layout::Sysfs, kdamond), || {
            let built = self.build(context)?;
            // Directories are not replaced while a slot is held, but may have been before.
            self.tree().node(kdamond)?;
            Ok(built)
        })
    }

    /// Copies what was found to the files that `command` is about; all of them for a refresh.
    fn fill(&self, context: Ino, found: &Found, command: &str) {
        let mut tree = self.tree();
        let schemes = dirs(&tree, context, "schemes");
        for (scheme, stats) in schemes.into_iter().zip(&found.stats) {
            if let ("update_schemes_stats" | "refresh", Ok(dir)) = (command, tree.lookup(scheme, "stats")) {
                for (name, number) in [
                    ("nr_tried", stats.nr_tried),
                    ("sz_tried", stats.sz_tried.0),
                    ("nr_applied", stats.nr_applied),
                    ("sz_applied", stats.sz_applied.0),
                    ("sz_ops_filter_passed", stats.sz_ops_filter_passed.0),
                    ("qt_exceeds", stats.qt_exceeds),
                ] {
                    tree.fill(dir, name, Value::Unsigned(number));
                }
            }
            if let ("update_schemes_effective_quotas" | "refresh", Ok(dir)) =
                (command, tree.lookup(scheme, "quotas"))
            {
                tree.fill(dir, "effective_bytes", Value::Unsigned(stats.effective_sz.0));
            }
        }
        if matches!(command, "update_tuned_intervals" | "refresh") {
            let intervals = Staged::at(&tree, context).dir("monitoring_attrs/intervals").ino();
            let attrs = &found.attrs;
            tree.fill(intervals, "sample_us", Value::Unsigned(attrs.sample.as_micros()));
            tree.fill(intervals, "aggr_us", Value::Unsigned(attrs.aggr.as_micros()));
        }
    }

    fn clear_tried(&self, context: Ino) {
        let mut tree = self.tree();
        for scheme in dirs(&tree, context, "schemes") {
            if let Ok(dir) = tree.lookup(scheme, "tried_regions") {
                tree.refill(dir, 0);
                tree.fill(dir, "total_bytes", Value::Unsigned(0));
            }
        }
    }

    fn update_tried(
        &self,
        context: Ino,
        slot: &Slot,
        wanted: Wanted,
        given_up: GivenUp<'_>,
    ) -> Result<(), Errno> {
        let tried = slot.ask(|running| running.collect())?;
        self.clear_tried(context);
        // Not held meanwhile, so that it can be stopped.
        let tried = wait_for(&tried, slot, given_up)?;
        let mut tree = self.tree();
        let schemes = dirs(&tree, context, "schemes");
        for (nth, mut regions) in tried {
            let Some(scheme) = schemes.get(nth) else { break };
            if let Ok(dir) = tree.lookup(*scheme, "tried_regions") {
                regions.sort_by_key(|region| (region.run.target, region.run.range.start));
                fill_tried(&mut tree, dir, &regions, wanted);
            }
        }
        Ok(())
    }

    /// Notices kdamonds that have ended, and refreshes files of those that are to be.
    fn tend(&self, refreshed: &mut Vec<(Ino, Instant)>) {
        for (kdamond, slot) in self.engine.of(Layout::Sysfs) {
            let runs = slot.runs();
            let interval = self.refresh_interval(kdamond).filter(|_| runs);
            let Some(interval) = interval else {
                refreshed.retain(|(ino, _)| *ino != kdamond);
                continue;
            };
            let last = refreshed.iter_mut().find(|(ino, _)| *ino == kdamond);
            match last {
                Some((_, last)) if last.elapsed() < interval => continue,
                Some((_, last)) => *last = Instant::now(),
                None => refreshed.push((kdamond, Instant::now())),
            }
            // One that ended just now keeps what its files showed last.
            if let (Ok(context), Ok(found)) = (self.context(kdamond), slot.ask(|running| running.found())) {
                self.fill(context, &found, "refresh");
            }
        }
    }

    fn refresh_interval(&self, kdamond: Ino) -> Option<Duration> {
        let tree = self.tree();
        let ino = tree.lookup(kdamond, "refresh_ms").ok()?;
        match tree.value(ino) {
            Some(Value::Unsigned(ms)) if *ms > 0 => Some(Duration::from_millis(*ms)),
            _ => None,
        }
    }
}

/// Until nobody has the control files any more.
fn tend(control: &Weak<Control>) {
    let mut refreshed = Vec::new();
    while let Some(control) = control.upgrade() {
        control.tend(&mut refreshed);
        drop(control);
        thread::sleep(TICK);
    }
}

/// What was collected; ECANCELED when the kdamond ends before it is.
fn wait_for(tried: &Receiver<Tried>, slot: &Slot, given_up: GivenUp<'_>) -> Result<Tried, Errno> {
    loop {
        match tried.recv_timeout(TICK) {
            Ok(tried) => return Ok(tried),
            Err(RecvTimeoutError::Disconnected) => return Err(Errno::CANCELED),
            Err(RecvTimeoutError::Timeout) if slot.tid().is_none() => return Err(Errno::CANCELED),
            Err(RecvTimeoutError::Timeout) if given_up() => {
                // Free for the next who asks; it fails only where there is nothing to free.
                let _ = slot.ask(|running| running.collect_no_more());
                return Err(Errno::INTR);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The numbered directories below `name`.
fn dirs(tree: &Tree, context: Ino, name: &str) -> Vec<Ino> {
    let numbered = Staged::at(tree, context).dir(name).numbered();
    numbered.into_iter().map(Staged::ino).collect()
}

fn fill_tried(tree: &mut Tree, dir: Ino, regions: &[TriedRegion], wanted: Wanted) {
    let total = regions.iter().map(|region| region.run.range.len().0).sum();
    tree.fill(dir, "total_bytes", Value::Unsigned(total));
    if wanted == Wanted::Bytes {
        return;
    }
    let children = tree.refill(dir, regions.len() as u64);
    for (child, region) in children.into_iter().zip(regions) {
        for (name, number) in [
            ("start", region.run.range.start.0),
            ("end", region.run.range.end.0),
            ("nr_accesses", u64::from(region.nr_accesses)),
            ("age", u64::from(region.age)),
            ("sz_filter_passed", region.passed_filters.0),
        ] {
            tree.fill(child, name, Value::Unsigned(number));
        }
    }
}
