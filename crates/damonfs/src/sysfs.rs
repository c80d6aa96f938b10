//! The control files of `/sys/kernel/mm/damon`: the staged tree, and the files with an effect.
//!
//! A read never fails with EBUSY. It shows the values from before a command that still runs.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use thermo_engine::sink::TriedRegion;

use crate::engine::{self, Engine, Slot, State, Status, TriedRegions};
use crate::files::{ControlFiles, IsCancelled, Write};
use crate::staged::StagedDir;
use crate::table::{Layout, Role, STATE_COMMANDS};
use crate::tree::{Ino, Tree};
use crate::value::{self, Value};

/// Interval of the checks whether a kdamond has ended and whether its files need a refresh.
const TICK: Duration = Duration::from_millis(50);
/// Maximum length of one write in sysfs, in bytes. A client writes the rest of a longer text separately.
const MAX_WRITE: usize = 4096;
/// The supported operations: both monitor processes. Physical memory (`paddr`) is not supported.
const OPERATIONS: &str = "vaddr\nfvaddr";

/// Control files with the layout of sysfs.
#[derive(Debug)]
pub struct SysfsFiles {
    tree: Mutex<Tree>,
    engine: Arc<Engine>,
}

/// The files below `tried_regions` that a command updates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TriedDetail {
    /// All regions, and their total.
    Regions,
    /// The total only.
    Bytes,
}

impl ControlFiles for SysfsFiles {
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
        let text = write.text.get(..MAX_WRITE).unwrap_or(write.text);
        let (role, parent) = {
            let tree = self.tree();
            let node = tree.node(ino)?;
            (node.role(), node.parent())
        };
        match role {
            Role::State => {
                let command = value::parse_word(text, &STATE_COMMANDS)?;
                self.run_command(parent, command, write.is_cancelled)?;
            }
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

impl SysfsFiles {
    /// Control files that control `engine`, with nothing staged.
    ///
    /// # Errors
    /// The thread that refreshes files cannot be started.
    pub fn new(engine: Arc<Engine>) -> std::io::Result<Arc<Self>> {
        let tree = Mutex::new(Tree::new(Layout::Sysfs.root()));
        let files = Arc::new(Self { tree, engine });
        let weak = Arc::downgrade(&files);
        thread::Builder::new()
            .name("damonfs".to_owned())
            .spawn(move || refresh_loop(&weak))?;
        Ok(files)
    }

    /// The slot of a kdamond's directory.
    fn slot(&self, kdamond: Ino) -> Arc<Slot> {
        self.engine.slot((Layout::Sysfs, kdamond))
    }

    fn run_command(&self, kdamond: Ino, command: &str, is_cancelled: IsCancelled<'_>) -> Result<(), Errno> {
        let slot = self.slot(kdamond);
        if command == "off" {
            return slot.with(State::stop);
        }
        let context = self.context(kdamond)?;
        match command {
            "on" => self.start(kdamond, context),
            "commit" => slot.with_running(|running| running.commit(self.build(context)?)),
            "commit_schemes_quota_goals" => {
                let goals = engine::all_goals(StagedDir::at(&self.tree(), context).dir("schemes"));
                slot.with_running(|running| running.commit_goals(goals))
            }
            "update_schemes_tried_regions" => {
                self.update_tried(context, &slot, TriedDetail::Regions, is_cancelled)
            }
            "update_schemes_tried_bytes" => {
                self.update_tried(context, &slot, TriedDetail::Bytes, is_cancelled)
            }
            "clear_schemes_tried_regions" => {
                self.clear_tried(context);
                Ok(())
            }
            update => {
                let status = slot.with_running(|running| running.status())?;
                self.update_files(context, &status, update);
                Ok(())
            }
        }
    }

    /// The only context of a kdamond.
    fn context(&self, kdamond: Ino) -> Result<Ino, Errno> {
        let tree = self.tree();
        let contexts = tree.lookup(kdamond, "contexts").map_err(|_| Errno::NODEV)?;
        tree.lookup(contexts, "0").map_err(|_| Errno::INVAL)
    }

    fn build(&self, context: Ino) -> Result<engine::ContextConfig, Errno> {
        let tree = self.tree();
        // Another client may have replaced the context.
        tree.node(context)?;
        engine::build(self.engine.root(), StagedDir::at(&tree, context))
    }

    fn start(&self, kdamond: Ino, context: Ino) -> Result<(), Errno> {
        self.engine.start((Layout::Sysfs, kdamond), || {
            let config = self.build(context)?;
            // Directories are not replaced while the slot is locked, but may have been replaced before.
            self.tree().node(kdamond)?;
            Ok(config)
        })
    }

    /// Copies `status` to the files that `command` updates. The pseudo command `refresh` updates all of them.
    fn update_files(&self, context: Ino, status: &Status, command: &str) {
        let mut tree = self.tree();
        let schemes = numbered_dirs(&tree, context, "schemes");
        for (scheme, stats) in schemes.into_iter().zip(&status.stats) {
            if let ("update_schemes_stats" | "refresh", Ok(dir)) = (command, tree.lookup(scheme, "stats")) {
                for (name, number) in [
                    ("nr_tried", stats.nr_tried),
                    ("sz_tried", stats.sz_tried.0),
                    ("nr_applied", stats.nr_applied),
                    ("sz_applied", stats.sz_applied.0),
                    ("sz_ops_filter_passed", stats.sz_ops_filter_passed.0),
                    ("qt_exceeds", stats.qt_exceeds),
                ] {
                    tree.set_file(dir, name, Value::Unsigned(number));
                }
            }
            if let ("update_schemes_effective_quotas" | "refresh", Ok(dir)) =
                (command, tree.lookup(scheme, "quotas"))
            {
                tree.set_file(dir, "effective_bytes", Value::Unsigned(stats.effective_sz.0));
            }
        }
        if matches!(command, "update_tuned_intervals" | "refresh") {
            let intervals = StagedDir::at(&tree, context)
                .dir("monitoring_attrs/intervals")
                .ino();
            let attrs = &status.attrs;
            tree.set_file(intervals, "sample_us", Value::Unsigned(attrs.sample.as_micros()));
            tree.set_file(intervals, "aggr_us", Value::Unsigned(attrs.aggr.as_micros()));
        }
    }

    fn clear_tried(&self, context: Ino) {
        let mut tree = self.tree();
        for scheme in numbered_dirs(&tree, context, "schemes") {
            if let Ok(dir) = tree.lookup(scheme, "tried_regions") {
                tree.replace_generated(dir, 0);
                tree.set_file(dir, "total_bytes", Value::Unsigned(0));
            }
        }
    }

    fn update_tried(
        &self,
        context: Ino,
        slot: &Slot,
        detail: TriedDetail,
        is_cancelled: IsCancelled<'_>,
    ) -> Result<(), Errno> {
        let receiver = slot.with_running(|running| running.collect_tried_regions())?;
        self.clear_tried(context);
        // The slot is not locked while this waits, so that `off` can stop the kdamond.
        let tried = wait_for(&receiver, slot, is_cancelled)?;
        let mut tree = self.tree();
        let schemes = numbered_dirs(&tree, context, "schemes");
        for (nth, mut regions) in tried {
            let Some(scheme) = schemes.get(nth) else { break };
            if let Ok(dir) = tree.lookup(*scheme, "tried_regions") {
                regions.sort_by_key(|region| (region.target_range.target, region.target_range.range.start));
                write_tried(&mut tree, dir, &regions, detail);
            }
        }
        Ok(())
    }

    /// Detects kdamonds that have ended, and refreshes the files of kdamonds with `refresh_ms` set.
    fn refresh(&self, refreshed: &mut Vec<(Ino, Instant)>) {
        for (kdamond, slot) in self.engine.slots_of(Layout::Sysfs) {
            let is_running = slot.is_running();
            let interval = self.refresh_interval(kdamond).filter(|_| is_running);
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
            // If the kdamond ended just now, its files keep their last values.
            let status = slot.with_running(|running| running.status());
            if let (Ok(context), Ok(status)) = (self.context(kdamond), status) {
                self.update_files(context, &status, "refresh");
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

/// Runs until the control files are dropped.
fn refresh_loop(files: &Weak<SysfsFiles>) {
    let mut refreshed = Vec::new();
    while let Some(files) = files.upgrade() {
        files.refresh(&mut refreshed);
        drop(files);
        thread::sleep(TICK);
    }
}

/// Waits for the tried regions of all active schemes.
///
/// # Errors
/// ECANCELED: the kdamond ended before. EINTR: the client no longer waits.
fn wait_for(
    receiver: &Receiver<TriedRegions>,
    slot: &Slot,
    is_cancelled: IsCancelled<'_>,
) -> Result<TriedRegions, Errno> {
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(tried) => return Ok(tried),
            Err(RecvTimeoutError::Disconnected) => return Err(Errno::CANCELED),
            Err(RecvTimeoutError::Timeout) if slot.tid().is_none() => return Err(Errno::CANCELED),
            Err(RecvTimeoutError::Timeout) if is_cancelled() => {
                // Lets the next client collect. Fails only if the kdamond has ended.
                let _ = slot.with_running(|running| running.cancel_collection());
                return Err(Errno::INTR);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The numbered directories in the directory `name` of a context.
fn numbered_dirs(tree: &Tree, context: Ino, name: &str) -> Vec<Ino> {
    let numbered = StagedDir::at(tree, context).dir(name).numbered();
    numbered.into_iter().map(StagedDir::ino).collect()
}

fn write_tried(tree: &mut Tree, dir: Ino, regions: &[TriedRegion], detail: TriedDetail) {
    let total = regions
        .iter()
        .map(|region| region.target_range.range.len().0)
        .sum();
    tree.set_file(dir, "total_bytes", Value::Unsigned(total));
    if detail == TriedDetail::Bytes {
        return;
    }
    let children = tree.replace_generated(dir, regions.len() as u64);
    for (child, region) in children.into_iter().zip(regions) {
        for (name, number) in [
            ("start", region.target_range.range.start.0),
            ("end", region.target_range.range.end.0),
            ("nr_accesses", u64::from(region.nr_accesses)),
            ("age", u64::from(region.age)),
            ("sz_filter_passed", region.passed_filters.0),
        ] {
            tree.set_file(child, name, Value::Unsigned(number));
        }
    }
}
