//! `thermo fs`: DAMON's control files, backed by this engine, for one command or as a service.
//!
//! `namespace` and `overlay_mount` mount the files, `path_shims` replaces perf, pgrep, pidof and ps, `perf`
//! is the replacement of perf (`perf_args`: its arguments), and `events` serves the socket that it reads.

mod events;
mod namespace;
mod overlay_mount;
mod path_shims;
mod perf;
mod perf_args;
mod service;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use thermo_backends::Tracker;
use thermo_backends::smaps::Smaps;
use thermo_damonfs::{ControlFiles, DebugfsFiles, Engine, Mounted, SysfsFiles, TrackerFactory};
use thermo_kernel::clock;
use thermo_runtime::host::{Host, OwnTracker, Requirements};
use thermo_targets::{TargetSpec, TrackedProcesses};
use thermo_term::exit::Exit;
use thermo_units::printable;

use crate::args::candidates;
use crate::privileges;

/// Provide DAMON's control files, backed by this engine, so that damo and other tools for DAMON work
/// unchanged.
///
/// A command runs in its own mount namespace: the files are at /sys/kernel/mm/damon, HOME is an empty
/// directory, and `perf` records the events of this engine. Nothing changes outside, and everything ends with
/// the command. The modules damon_reclaim, damon_lru_sort and damon_stat are there, too; they act only on the
/// processes of --modules-on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo fs -- damo record 4242
  thermo fs --mount /run/damon
  thermo fs --modules-on 4242 -- sh -c 'echo Y >/sys/module/damon_reclaim/parameters/enabled; sleep 60'")]
pub struct Fs {
    /// Mount the files at this directory instead, until interrupted
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    mount: Option<PathBuf>,

    /// Layout of the files: sysfs (as on Linux 5.18 and later) or debugfs (5.15 to 6.13)
    #[arg(long, value_enum, value_name = "NAME", default_value = "sysfs")]
    layout: Layout,

    /// Processes that the modules may act on: a process ID (may be given more than once), or the path of a
    /// control group, like /system.slice/redis.service or a directory below /sys/fs/cgroup
    #[arg(long, value_name = "PID|CGROUP", conflicts_with = "mount")]
    modules_on: Vec<String>,

    /// Let the modules act on all processes of the machine except thermo, pid 1, kernel threads and session
    /// programs
    #[arg(long, conflicts_with_all = ["mount", "modules_on"])]
    system: bool,

    /// Tracker that finds accesses: auto, pte or smaps
    #[arg(long, value_name = "NAME", default_value = "auto", add = candidates::control_file_trackers())]
    tracker: String,

    /// Act as perf, with the events of this socket
    #[arg(long, value_name = "SOCKET", hide = true)]
    as_perf: Option<PathBuf>,

    /// Command to run
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Layouts of the control files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Layout {
    Sysfs,
    Debugfs,
}

impl Layout {
    /// The files of this layout, backed by `engine`.
    fn files(self, engine: &Arc<Engine>) -> anyhow::Result<Arc<dyn ControlFiles>> {
        let files: Arc<dyn ControlFiles> = match self {
            Self::Sysfs => SysfsFiles::new(Arc::clone(engine)).context("cannot start a thread")?,
            Self::Debugfs => DebugfsFiles::new(Arc::clone(engine)),
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
            "nothing to do: give a command, as in `thermo fs -- damo record 4242`, or a directory with --mount"
        );
        ensure!(
            rustix::process::geteuid().is_root(),
            "only root can mount control files: run it with sudo"
        );
        ensure!(
            Path::new("/dev/fuse").exists(),
            "/dev/fuse does not exist, and control files need it: run `modprobe fuse`"
        );
        let module_targets = self.module_targets()?;
        let engine = Arc::new(Engine::new("/", self.tracker_factory()?, warn));
        match &self.mount {
            Some(dir) => {
                privileges::keep_only(privileges::FS)?;
                service::run(dir, self.layout.files(&engine)?)
            }
            None => namespace::run(&self.command, self.layout, &engine, module_targets),
        }
    }

    /// The processes that modules may act on; `None` if none is named.
    fn module_targets(&self) -> anyhow::Result<Option<TargetSpec>> {
        let (pids, groups): (Vec<_>, Vec<_>) = self
            .modules_on
            .iter()
            .map(|target| target.parse::<u32>().map_err(|_| target))
            .partition(Result::is_ok);
        ensure!(
            groups.len() <= 1 && (groups.is_empty() || pids.is_empty()),
            "--modules-on takes processes or one control group, but {} values with a control group among them were \
             given: name one group that holds all",
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
            // Report wrong targets now, not when a module is enabled.
            TrackedProcesses::new(Path::new("/"), spec.clone())?;
        }
        Ok(spec)
    }

    fn tracker_factory(&self) -> anyhow::Result<TrackerFactory> {
        Ok(match self.tracker.as_str() {
            "auto" => {
                // Without any tracker, the control files say that nothing is known of the accesses.
                let own = Host::probe().open_own_tracker(seed());
                let name = own.map_or("smaps", |own| own.name);
                Box::new(move || another(name))
            }
            "smaps" => Box::new(smaps),
            "pte" => {
                // An error here has the reason.
                Host::probe().open_tracker("pte", 0, Requirements::default())?;
                Box::new(|| another("pte"))
            }
            other => bail!("{other} is not a tracker for control files: use auto, pte or smaps"),
        })
    }
}

fn warn(warning: &str) {
    thermo_kernel::message!("thermo: {}", printable(warning));
}

/// A tracker for a new kdamond.
fn another(name: &'static str) -> Box<dyn Tracker + Send> {
    OwnTracker::open_another(name, seed()).unwrap_or_else(|why| {
        warn(&why.to_string());
        smaps()
    })
}

fn smaps() -> Box<dyn Tracker + Send> {
    Box::new(Smaps::new(Path::new("/"), seed()))
}

fn seed() -> u64 {
    clock::monotonic().0
}

/// Mounts `files` at `dir`.
fn mount(dir: &Path, files: Arc<dyn ControlFiles>) -> anyhow::Result<Mounted> {
    Mounted::new(files, dir).with_context(|| format!("cannot mount control files at {}", dir.display()))
}
