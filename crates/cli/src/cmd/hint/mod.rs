//! `thermo hint`: advises the kernel about memory of other processes, once and at once.

mod by_name;
mod idle;
mod page_cache;
mod results;

pub use idle::find_idle;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use thermo_actions::hint::{Hint as RangeHint, HintResult, Hinter, Limits, PageKind, Selection, SkipReason};
use thermo_actions::{Actor, PageoutLimits};
use thermo_backends::PteTracker;
use thermo_engine::Action;
use thermo_engine::ops::Skip;
use thermo_kernel::cgroup::Group;
use thermo_runtime::host::Host;
use thermo_targets::{LayoutRule, TargetSpec, TrackedProcesses};
use thermo_term::exit::Exit;
use thermo_term::interrupt;
use thermo_units::{AddrRange, Bytes, Nanos, printable};

use crate::args::{candidates, number};
use crate::privileges;

/// How often Ctrl-C is checked.
const POLL: Duration = Duration::from_millis(20);

/// Advise the kernel about memory of other processes, once: page it out, bring it in, make it hot or cold.
///
/// Without --idle-for or --skip-young the action is applied to all selected memory, accessed or not. Actions:
/// willneed (read in from swap or files), cold (reclaim first under memory pressure), pageout (reclaim now),
/// lru_prio and lru_deprio (move up and down on LRU lists), hugepage and collapse (make huge pages),
/// nohugepage (split them), stat (only list the memory). Exit code 1: no memory was advised (with --dry-run:
/// none would be), unless all of it is in memory already; or one of several files of --page-cache could not
/// be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo hint cold --name firefox --anon
  thermo hint pageout --pid 4242 --idle-for 30s --max-bytes 512M --json
  thermo hint lru_prio --page-cache /var/lib/db/index.dat")]
pub struct Hint {
    /// Action to apply
    #[arg(value_name = "ACTION", add = candidates::actions())]
    action: Action,

    #[command(flatten)]
    targets: TargetArgs,

    #[command(flatten)]
    memory: MemoryArgs,

    /// Advise at most this many bytes of resident memory in total
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    max_bytes: Option<Bytes>,

    /// Start no system call later than this after the first hint
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    max_time: Option<Nanos>,

    /// Start no system call after this much CPU time was spent on hints
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    max_cpu: Option<Nanos>,

    /// Decide and report, but change no memory
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The processes or files.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Targets")]
struct TargetArgs {
    /// A process; may be given more than once
    #[arg(long, value_name = "PID", value_parser = number::pid, add = candidates::pids())]
    pid: Vec<u32>,

    /// All processes of a control group and of its descendants. PATH as in /proc/PID/cgroup, like
    /// /system.slice/redis.service, or the whole directory: /sys/fs/cgroup/... (version 2) or
    /// /sys/fs/cgroup/memory/... (version 1)
    #[arg(long, value_name = "PATH", add = candidates::cgroups())]
    cgroup: Option<String>,

    /// All processes of a systemd unit of the system or of the calling user, found by the name of its control
    /// group
    #[arg(long, value_name = "UNIT", conflicts_with = "cgroup", add = candidates::units())]
    unit: Option<String>,

    /// All processes of a program, by its name as ps shows it; may be given more than once
    #[arg(long, value_name = "NAME", add = candidates::programs())]
    name: Vec<String>,

    /// Instead of processes: the resident pages of this file, mapped or not (lru_prio, lru_deprio and stat);
    /// may be given more than once
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["pid", "cgroup", "unit", "name", "anon", "file", "range", "mapping", "idle_for", "skip_young"]
    )]
    page_cache: Vec<PathBuf>,
}

/// The part of the processes' memory.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
struct MemoryArgs {
    /// Anonymous pages only
    #[arg(long, conflicts_with = "file")]
    anon: bool,

    /// Pages of files and shared memory only
    #[arg(long)]
    file: bool,

    /// Memory between these addresses only, hexadecimal as in /proc/PID/maps
    #[arg(long, value_name = "A-B", value_parser = range)]
    range: Option<AddrRange>,

    /// Mappings with this text in their name only, like libc.so or heap; may be given more than once
    #[arg(long, value_name = "TEXT")]
    mapping: Vec<String>,

    /// Memory that is not accessed for this long only; the command monitors for that time first
    #[arg(long, value_name = "TIME")]
    idle_for: Option<Nanos>,

    /// Skip pages whose accessed bit is set, that is: accessed since the kernel or a monitor last cleared the
    /// bit
    #[arg(long)]
    skip_young: bool,
}

fn range(text: &str) -> Result<AddrRange, String> {
    let number = |digits: &str| u64::from_str_radix(digits.trim().trim_start_matches("0x"), 16).ok();
    let ends = text.split_once('-').and_then(|(a, b)| number(a).zip(number(b)));
    match ends {
        Some((start, end)) if start < end => Ok(AddrRange::new(start, end)),
        Some(_) => Err("the end must be above the start".to_owned()),
        None => Err("give two addresses, like 7f2a4c000000-7f2a50000000".to_owned()),
    }
}

/// One range and its result.
struct Row {
    pid: u32,
    range: AddrRange,
    hinted: HintResult,
}

impl Hint {
    /// Applies the hints and prints their results.
    pub fn run(self) -> anyhow::Result<Exit> {
        ensure!(
            !self.action.migrates(),
            "{} needs a node to migrate to, which a hint does not name: use a scheme with target_nid, or thermo tier",
            self.action
        );
        if !self.targets.page_cache.is_empty() {
            return self.hint_files();
        }
        let processes = TrackedProcesses::new(Path::new("/"), self.targets.spec()?)?;
        let host = Host::probe();
        if let Some(report) = host.unsupported(self.action) {
            return Err(anyhow!("{} cannot be done here: {}", self.action, report.reason));
        }
        interrupt::listen().context("cannot handle Ctrl-C")?;
        privileges::keep_only(privileges::HINT)?;
        let (mut processes, hints) = self.hints(processes, host)?;
        warn(&mut processes);
        if interrupt::requested() {
            return Ok(Exit::Interrupted);
        }
        let rows = self.apply(&processes, &hints)?;
        if self.json {
            results::print_json(self.action, self.dry_run, &rows)?;
        } else {
            let nothing = nothing_text(processes.processes().len(), self.memory.idle_for);
            results::print_text(self.action, &rows, &nothing)?;
        }
        let skipped = rows.iter().flat_map(|row| &row.hinted.skipped);
        let skipped = skipped.filter_map(|(why, _)| match why {
            SkipReason::Skip(why) => Some(*why),
            _ => None,
        });
        let advised = rows.iter().map(|row| row.hinted.advised).sum();
        Ok(match () {
            () if interrupt::requested() => Exit::Interrupted,
            () if nothing_was_done(self.action, advised, skipped) => Exit::Negative,
            () => Exit::Done,
        })
    }

    fn hint_files(&self) -> anyhow::Result<Exit> {
        ensure!(
            self.max_time.is_none() && self.max_cpu.is_none(),
            "--max-time and --max-cpu are for hints to processes: limit page cache by --max-bytes"
        );
        interrupt::listen().context("cannot handle Ctrl-C")?;
        let files = page_cache::Files {
            action: self.action,
            paths: &self.targets.page_cache,
            max_bytes: self.max_bytes,
            dry_run: self.dry_run,
            json: self.json,
        };
        privileges::keep_only(privileges::HINT)?;
        files.hint()
    }

    /// A hint for each selected range: the selected mappings, or their idle parts.
    fn hints(
        &self,
        mut processes: TrackedProcesses,
        host: Host,
    ) -> anyhow::Result<(TrackedProcesses, Vec<RangeHint>)> {
        let selection = Selection {
            range: self.memory.range,
            names: self.memory.mapping.clone(),
        };
        let idle = match self.memory.idle_for {
            Some(time) => {
                let idle = find_idle(processes, host, time)?;
                processes = idle.processes;
                Some(idle.ranges)
            }
            None => {
                processes.update()?;
                None
            }
        };
        let mut hints = Vec::new();
        for process in processes.processes().values() {
            // A process that has ended meanwhile has no ranges.
            let ranges = match selection.ranges(Path::new("/"), process.pid) {
                Err(error) if error.is_gone() => Vec::new(),
                ranges => ranges?,
            };
            let selected = match &idle {
                Some(idle) => idle::idle_parts(idle, process.id, &ranges),
                None => ranges,
            };
            hints.extend(selected.into_iter().map(|range| RangeHint {
                target: process.id,
                range,
                action: self.action,
            }));
        }
        Ok((processes, hints))
    }

    fn apply(&self, processes: &TrackedProcesses, hints: &[RangeHint]) -> anyhow::Result<Vec<Row>> {
        let limits = Limits {
            max_bytes: self.max_bytes,
            max_time: self.max_time,
            max_cpu: self.max_cpu,
        };
        let actor = Actor::new(PageoutLimits::default(), self.dry_run);
        let cancel = actor.cancel_flag();
        let mut hinter = Hinter::new(actor, limits);
        if let Some(kind) = self.memory.kind() {
            hinter = hinter.only(kind);
        }
        if self.memory.skip_young {
            let page_tables =
                PteTracker::new().context("--skip-young reads page tables, which cannot be done here")?;
            hinter = hinter.skip_young(page_tables);
        }
        let processes = processes.processes();
        let results = run_cancellable(&cancel, || hinter.give(processes, hints))?;
        let rows = hints.iter().zip(results).filter_map(|(hint, hinted)| {
            let pid = processes.get(&hint.target)?.pid;
            Some(Row {
                pid,
                range: hint.range,
                hinted,
            })
        });
        Ok(rows.collect())
    }
}

/// Whether no memory was advised, nor would be in a dry run, nor is as the action makes it already. `stat`
/// does nothing ever.
fn nothing_was_done(action: Action, advised: Bytes, mut skipped: impl Iterator<Item = Skip>) -> bool {
    let is_good = |why: Skip| matches!(why, Skip::DryRun | Skip::Resident | Skip::OnNode);
    action != Action::Stat && advised == Bytes::ZERO && !skipped.any(is_good)
}

/// Why there is no range to advise. `idle_for`: only memory that was idle for this time is.
fn nothing_text(nr_processes: usize, idle_for: Option<Nanos>) -> String {
    let missing = match (nr_processes, idle_for) {
        (0, _) => "there is no process to advise".to_owned(),
        (_, Some(time)) => format!("no selected memory was idle for {time}"),
        _ => "no memory matches".to_owned(),
    };
    format!("{missing}, so nothing was done\n")
}

/// Prints why processes are left out.
pub fn warn(processes: &mut TrackedProcesses) {
    for warning in processes.take_warnings() {
        thermo_kernel::message!("thermo: {}", printable(&warning));
    }
}

/// Runs `f`, and sets `cancel` when Ctrl-C is pressed.
///
/// # Errors
/// No thread can be started that waits for Ctrl-C.
pub fn run_cancellable<R>(cancel: &Arc<AtomicBool>, f: impl FnOnce() -> R) -> anyhow::Result<R> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let wait = || {
            while !done.load(Ordering::Relaxed) {
                cancel.store(interrupt::requested(), Ordering::Relaxed);
                thread::sleep(POLL);
            }
        };
        let started = thread::Builder::new().spawn_scoped(scope, wait);
        started.context("cannot start a thread")?;
        let result = f();
        done.store(true, Ordering::Relaxed);
        Ok(result)
    })
}

impl TargetArgs {
    fn spec(&self) -> anyhow::Result<TargetSpec> {
        ensure!(
            !self.pid.is_empty() || self.cgroup.is_some() || self.unit.is_some() || !self.name.is_empty(),
            "no target is named: give --pid PID, --cgroup PATH, --unit UNIT or --name NAME"
        );
        let uid = rustix::process::geteuid().as_raw();
        let unit = self
            .unit
            .as_ref()
            .map(|unit| Group::find_unit(Path::new("/"), unit, uid))
            .transpose()?;
        let unit = unit.map(|group| group.dir.display().to_string());
        let mut pids = self.pid.clone();
        for name in &self.name {
            pids.extend(by_name::pids(Path::new("/"), name)?);
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(TargetSpec {
            pids,
            cgroup: self.cgroup.clone().or(unit),
            layout: LayoutRule::Mappings,
            ..TargetSpec::default()
        })
    }
}

impl MemoryArgs {
    const fn kind(&self) -> Option<PageKind> {
        match (self.anon, self.file) {
            (true, _) => Some(PageKind::Anon),
            (_, true) => Some(PageKind::File),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn advice_that_was_not_given_is_a_negative_answer() {
        let nothing = |action, advised, skipped: &[Skip]| {
            nothing_was_done(action, Bytes(advised), skipped.iter().copied())
        };
        assert!(nothing(Action::Cold, 0, &[]), "no memory matches");
        assert!(nothing(Action::Cold, 0, &[Skip::Shared, Skip::NotPermitted]));
        assert!(!nothing(Action::Cold, 4096, &[Skip::Shared]));
        assert!(!nothing(Action::Cold, 0, &[Skip::Shared, Skip::DryRun]));
        assert!(!nothing(Action::Willneed, 0, &[Skip::Resident]));
        assert!(!nothing(Action::Stat, 0, &[]));
    }

    #[test]
    fn text_without_ranges_says_what_is_missing() {
        assert!(nothing_text(1, None).contains("no memory matches"));
        assert!(nothing_text(1, Some(Nanos::secs(60))).contains("no selected memory was idle for 60.0 s"));
        assert!(nothing_text(0, Some(Nanos::secs(60))).contains("there is no process"));
    }

    #[test]
    fn ranges_parse_like_proc_maps() {
        assert_eq!(range("1000-0x2f00").unwrap(), AddrRange::new(0x1000, 0x2f00));
        assert!(range("2000-1000").unwrap_err().contains("above the start"));
        for wrong in ["", "1000", "x-y", "1000-"] {
            assert!(range(wrong).unwrap_err().contains("two addresses"), "{wrong}");
        }
    }
}
