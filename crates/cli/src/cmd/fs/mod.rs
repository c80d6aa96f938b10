//! `thermo fs`: DAMON's control files over this engine, for a command or for a service.
//!
//! What is mounted where is in `namespace` and `cover`, the programs that stand in for others in `stand_ins`, what the one
//! for perf does in `perf`, and the socket it reads in `events`.

mod events;
mod namespace;
mod overlay_mount;
mod path_shims;
mod perf;
mod service;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use thermo_backends::smaps::Smaps;
use thermo_damonfs::{Control, ControlFiles, Early, Engine, Mounted, TrackerFactory};
use thermo_kernel::clock;
use thermo_runtime::best_tracker;
use thermo_targets::{TargetSpec, TrackedProcesses};
use thermo_term::exit::Exit;

use crate::session::{Host, Requirements};

/// Show DAMON's control files over this engine, so that damo and other tools for DAMON work unchanged.
///
/// With a command, it runs in mounts of its own in which the files are at /sys/kernel/mm/damon, HOME is an empty
/// folder, and `perf` records the events of this engine. Nothing changes outside, and everything is gone with the
/// command. In there are also the modules damon_reclaim, damon_lru_sort and damon_stat, which act on what --modules-on
/// names and on nothing else.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo fs -- damo record 4242
  thermo fs --mount /run/damon
  thermo fs --modules-on 4242 -- sh -c 'echo Y >/sys/module/damon_reclaim/parameters/enabled; sleep 60'")]
pub struct Fs {
    /// Mount the files at this folder instead, until interrupted
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    mount: Option<PathBuf>,

    /// The files of which kernels: sysfs (Linux 5.18 and later) or debugfs (5.15 to 6.13)
    #[arg(long, value_enum, value_name = "NAME", default_value = "sysfs")]
    layout: Layout,

    /// What the modules may act on: a process by its number, or a control group by its path; may be given more than
    /// once for processes
    #[arg(long, value_name = "PID|CGROUP", conflicts_with = "mount")]
    modules_on: Vec<String>,

    /// Let the modules act on all processes of the machine but ourselves, pid 1, kernel threads and session programs
    #[arg(long, conflicts_with_all = ["mount", "modules_on"])]
    system: bool,

    /// How to look: auto, pte or smaps
    #[arg(long, value_name = "NAME", default_value = "auto")]
    tracker: String,

    /// Be perf, for events told by this socket
    #[arg(long, value_name = "SOCKET", hide = true)]
    as_perf: Option<PathBuf>,

    /// The command to run
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Which files to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Layout {
    Sysfs,
    Debugfs,
}

impl Layout {
    /// Its files over `engine`.
    fn files(self, engine: &Arc<Engine>) -> anyhow::Result<Arc<dyn ControlFiles>> {
        let files: Arc<dyn ControlFiles> = match self {
            Self::Sysfs => Control::new(Arc::clone(engine)).context("cannot start a thread")?,
            Self::Debugfs => Early::new(Arc::clone(engine)),
        };
        Ok(files)
    }
}

impl Fs {
    /// Mounts, serves and cleans up.
    pub fn run(self) -> anyhow::Result<Exit> {
        if let Some(socket) = &self.as_perf {
            return perf::run(socket, &self.command);
        }
        ensure!(
            self.mount.is_some() || !self.command.is_empty(),
            "nothing to do: give a command, as in `thermo fs -- damo record 4242`, or a folder with --mount"
        );
        ensure!(
            rustix::process::geteuid().is_root(),
            "control files can be mounted by root only: run it with sudo"
        );
        ensure!(
            Path::new("/dev/fuse").exists(),
            "/dev/fuse is not there, which control files are shown through: `modprobe fuse`"
        );
        let reach = self.reach()?;
        let engine = Arc::new(Engine::new("/", self.looks()?, tell));
        match &self.mount {
            Some(dir) => service::run(dir, self.layout.files(&engine)?),
            None => namespace::run(&self.command, self.layout, &engine, reach),
        }
    }

    /// What modules may act on: whoever was named, if anybody was.
    fn reach(&self) -> anyhow::Result<Option<TargetSpec>> {
        let (pids, groups): (Vec<_>, Vec<_>) = self
            .modules_on
            .iter()
            .map(|who| who.parse::<u32>().map_err(|_| who))
            .partition(Result::is_ok);
        ensure!(
            groups.len() <= 1 && (groups.is_empty() || pids.is_empty()),
            "--modules-on takes processes or one control group, and {} values were given with a control group among \
             them: name one group that holds all",
            self.modules_on.len()
        );
        let spec = TargetSpec {
            pids: pids.into_iter().flatten().collect(),
            cgroup: groups.into_iter().find_map(Result::err).cloned(),
            system: self.system,
            ..TargetSpec::default()
        };
        let spec = Some(spec).filter(|spec| !spec.is_empty());
        if let Some(spec) = &spec {
            // A wrong one is told now, not when a module is switched on.
            TrackedProcesses::new(Path::new("/"), spec.clone())?;
        }
        Ok(spec)
    }

    fn looks(&self) -> anyhow::Result<TrackerFactory> {
        Ok(match self.tracker.as_str() {
            "auto" => Box::new(|| best_tracker(Path::new("/"), seed())),
            "smaps" => Box::new(|| Box::new(Smaps::new(Path::new("/"), seed()))),
            "pte" => {
                // Tells why, if it cannot be had; later it is one of `auto`, which prefers it.
                Host::probe().tracker("pte", 0, Requirements::default())?;
                Box::new(|| best_tracker(Path::new("/"), seed()))
            }
            other => bail!("{other} is not a tracker for control files: use auto, pte or smaps"),
        })
    }
}

/// A kdamond must not end because nobody reads what it warns of.
fn tell(why: &str) {
    drop(writeln!(io::stderr(), "thermo: {why}"));
}

fn seed() -> u64 {
    clock::monotonic().0
}

/// Mounts `files` at `dir`.
fn mount(dir: &Path, files: Arc<dyn ControlFiles>) -> anyhow::Result<Mounted> {
    Mounted::new(files, dir).with_context(|| format!("cannot mount control files at {}", dir.display()))
}
