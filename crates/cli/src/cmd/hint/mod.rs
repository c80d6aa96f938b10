//! `thermo hint`: tells the kernel at once what should become of the memory of other processes.

mod idle;
mod named;
mod page_cache;
mod tell;

pub use idle::look as look_for_idle;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use thermo_actions::hint::{Hint as RangeHint, Hinted, Hinter, Kind, Limits, Selection};
use thermo_actions::{Actor, PageoutLimits};
use thermo_backends::PteTracker;
use thermo_engine::Action;
use thermo_kernel::cgroup::Group;
use thermo_targets::{LayoutRule, TargetSpec, TrackedProcesses};
use thermo_term::exit::Exit;
use thermo_term::interrupt;
use thermo_units::{AddrRange, Bytes, Nanos};

use crate::session::Host;

/// How soon Ctrl-C stops what goes on.
const POLL: Duration = Duration::from_millis(20);

/// Tell the kernel what should become of the memory of other processes: at once, once.
///
/// Without --idle-for or --skip-young it acts on everything that is named, touched or not. Actions: willneed (bring in), cold
/// (first to go under pressure), pageout (reclaim now), lru_prio, lru_deprio, hugepage, collapse, stat (nothing).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo hint cold --name firefox --anon
  thermo hint pageout --pid 4242 --idle-for 30s --max-bytes 512M --json
  thermo hint lru_prio --page-cache /var/lib/db/index.dat")]
pub struct Hint {
    /// What to do
    #[arg(value_name = "ACTION")]
    action: Action,

    #[command(flatten)]
    who: Who,

    #[command(flatten)]
    what: What,

    /// Advise at most this many bytes, all together
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    max_bytes: Option<Bytes>,

    /// Begin nothing later than this after the first hint
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    max_time: Option<Nanos>,

    /// Begin nothing once this much CPU time was spent on hints
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    max_cpu: Option<Nanos>,

    /// Decide and report everything, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Whose memory.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Targets")]
struct Who {
    /// A process; may be given more than once
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,

    /// All processes of a control group and of those below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,

    /// All processes of a systemd unit, found by the name of its control group
    #[arg(long, value_name = "UNIT", conflicts_with = "cgroup")]
    unit: Option<String>,

    /// All processes of a program, by its name as ps shows it; may be given more than once
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,

    /// No process, but what is in memory of this file, mapped or not (lru_prio, lru_deprio, stat); may be given more
    /// than once
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["pid", "cgroup", "unit", "name", "anon", "file", "range", "mapping", "idle_for", "skip_young"]
    )]
    page_cache: Vec<PathBuf>,
}

/// Which of it.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
struct What {
    /// Anonymous pages only
    #[arg(long, conflicts_with = "file")]
    anon: bool,

    /// Pages of files and shared memory only
    #[arg(long)]
    file: bool,

    /// Only what lies between these addresses, hexadecimal as in /proc/PID/maps
    #[arg(long, value_name = "A-B", value_parser = range)]
    range: Option<AddrRange>,

    /// Only mappings with this in their name, like libc.so or heap; may be given more than once
    #[arg(long, value_name = "TEXT")]
    mapping: Vec<String>,

    /// Only what is not touched for this long: looks on for that time first
    #[arg(long, value_name = "TIME")]
    idle_for: Option<Nanos>,

    /// Leave pages alone whose accessed mark is set now: touched since the kernel or a monitor last took it off
    #[arg(long)]
    skip_young: bool,
}

fn range(text: &str) -> Result<AddrRange, String> {
    let number = |digits: &str| u64::from_str_radix(digits.trim().trim_start_matches("0x"), 16).ok();
    let ends = text.split_once('-').and_then(|(a, b)| number(a).zip(number(b)));
    match ends {
        Some((start, end)) if start < end => Ok(AddrRange::new(start, end)),
        Some(_) => Err("the end must lie behind the start".to_owned()),
        None => Err("give two addresses, like 7f2a4c000000-7f2a50000000".to_owned()),
    }
}

/// One range that was hinted at, and what came of it.
struct Row {
    pid: u32,
    range: AddrRange,
    hinted: Hinted,
}

impl Hint {
    /// Gives the hints and tells what came of each.
    pub fn run(self) -> anyhow::Result<Exit> {
        Actor::supports(self.action)?;
        if !self.who.page_cache.is_empty() {
            return self.files();
        }
        let members = TrackedProcesses::new(Path::new("/"), self.who.spec()?)?;
        let host = Host::probe();
        if let Some(report) = host.obstacle(self.action) {
            return Err(anyhow!("{} cannot be done here: {}", self.action, report.reason));
        }
        interrupt::listen().context("cannot listen to Ctrl-C")?;
        let (members, hints) = self.hints(members, host)?;
        if interrupt::asked() {
            return Ok(Exit::Interrupted);
        }
        let rows = self.give(&members, &hints)?;
        if self.json {
            tell::json(self.action, self.dry_run, &rows)?;
        } else {
            tell::text(self.action, &rows)?;
        }
        Ok(if interrupt::asked() {
            Exit::Interrupted
        } else {
            Exit::Done
        })
    }

    fn files(&self) -> anyhow::Result<Exit> {
        ensure!(
            self.max_time.is_none() && self.max_cpu.is_none(),
            "--max-time and --max-cpu are for hints to processes: limit page cache by --max-bytes"
        );
        interrupt::listen().context("cannot listen to Ctrl-C")?;
        let files = page_cache::Files {
            action: self.action,
            paths: &self.who.page_cache,
            max_bytes: self.max_bytes,
            dry_run: self.dry_run,
            json: self.json,
        };
        files.hint()
    }

    /// What is hinted at: the mappings that are meant, or what of them is idle.
    fn hints(
        &self,
        mut members: TrackedProcesses,
        host: Host,
    ) -> anyhow::Result<(TrackedProcesses, Vec<RangeHint>)> {
        let selection = Selection {
            range: self.what.range,
            names: self.what.mapping.clone(),
        };
        let found = match self.what.idle_for {
            Some(time) => {
                let (looked_at, found) = idle::look(members, host, time)?;
                members = looked_at;
                Some(found)
            }
            None => {
                members.update()?;
                None
            }
        };
        let mut hints = Vec::new();
        for process in members.processes().values() {
            // One that has ended meanwhile has no memory to speak of.
            let ranges = match selection.ranges(Path::new("/"), process.pid) {
                Err(error) if error.is_gone() => Vec::new(),
                ranges => ranges?,
            };
            let meant = match &found {
                Some(found) => idle::within(found, process.id, &ranges),
                None => ranges,
            };
            hints.extend(meant.into_iter().map(|range| RangeHint {
                target: process.id,
                range,
                action: self.action,
            }));
        }
        Ok((members, hints))
    }

    fn give(&self, members: &TrackedProcesses, hints: &[RangeHint]) -> anyhow::Result<Vec<Row>> {
        let limits = Limits {
            max_bytes: self.max_bytes,
            max_time: self.max_time,
            max_cpu: self.max_cpu,
        };
        let actor = Actor::new(PageoutLimits::default(), self.dry_run);
        let cancel = actor.cancel_flag();
        let mut hinter = Hinter::new(actor, limits);
        if let Some(kind) = self.what.kind() {
            hinter = hinter.only(kind);
        }
        if self.what.skip_young {
            let tables =
                PteTracker::new().context("--skip-young reads page tables, which cannot be done here")?;
            hinter = hinter.skip_young(tables);
        }
        let processes = members.processes();
        let given = until_asked(&cancel, || hinter.give(processes, hints));
        let rows = hints.iter().zip(given).filter_map(|(hint, hinted)| {
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

/// Runs `f`, and cancels it when Ctrl-C is pressed.
fn until_asked<R>(cancel: &Arc<AtomicBool>, f: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cancel.store(interrupt::asked(), Ordering::Relaxed);
                thread::sleep(POLL);
            }
        });
        let result = f();
        done.store(true, Ordering::Relaxed);
        result
    })
}

impl Who {
    fn spec(&self) -> anyhow::Result<TargetSpec> {
        ensure!(
            !self.pid.is_empty() || self.cgroup.is_some() || self.unit.is_some() || !self.name.is_empty(),
            "no target is named: give --pid PID, --cgroup PATH, --unit UNIT or --name NAME"
        );
        let unit = self
            .unit
            .as_ref()
            .map(|unit| Group::of_unit(Path::new("/"), unit))
            .transpose()?;
        let unit = unit.map(|group| group.dir.display().to_string());
        let mut pids = self.pid.clone();
        for name in &self.name {
            pids.extend(named::pids(Path::new("/"), name)?);
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

impl What {
    const fn kind(&self) -> Option<Kind> {
        match (self.anon, self.file) {
            (true, _) => Some(Kind::Anon),
            (_, true) => Some(Kind::File),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn ranges_are_written_as_the_kernel_writes_them() {
        assert_eq!(range("1000-0x2f00").unwrap(), AddrRange::new(0x1000, 0x2f00));
        assert!(range("2000-1000").unwrap_err().contains("behind the start"));
        for wrong in ["", "1000", "x-y", "1000-"] {
            assert!(range(wrong).unwrap_err().contains("two addresses"), "{wrong}");
        }
    }
}
