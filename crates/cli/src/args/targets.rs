//! The targets: which processes are monitored.

use std::ffi::OsString;
use std::path::Path;

use anyhow::ensure;
use thermo_kernel::cgroup::Group;
use thermo_kernel::user::User;
use thermo_targets::{LayoutRule, TargetSpec};

use super::{candidates, number};

/// Running processes, a control group, or a command to start.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Targets")]
pub struct Targets {
    /// A process; may be given more than once
    #[arg(long, value_name = "PID", value_parser = number::pid, add = candidates::pids())]
    pub pid: Vec<u32>,

    /// All processes of a control group and of its descendants. PATH as in /proc/PID/cgroup, like
    /// /system.slice/redis.service, or the whole directory: /sys/fs/cgroup/... (version 2) or
    /// /sys/fs/cgroup/memory/... (version 1)
    #[arg(long, value_name = "PATH", add = candidates::cgroups())]
    pub cgroup: Option<String>,

    /// Monitor child processes of the targets, too (default with CMD)
    #[arg(long)]
    children: bool,

    /// Do not monitor child processes of the targets
    #[arg(long)]
    no_children: bool,

    /// Monitor each mapping by itself. Without this flag sampling monitors three address ranges that hold all
    /// mappings
    #[arg(long)]
    pub vma: bool,

    /// Run CMD as this user and without capabilities (as root only). Without this flag CMD runs as the
    /// caller, with all its privileges
    #[arg(long, value_name = "NAME", requires = "command")]
    user: Option<String>,

    /// Command to start and monitor; thermo exits with its exit code
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,

    /// Every process of the machine. Set by verbs that have a flag for it.
    #[arg(skip)]
    pub system: bool,

    /// Whether the session waits for a removed control group. Set by verbs that run as a service.
    #[arg(skip)]
    pub waits_for_cgroup: bool,

    /// Names of programs that are not targets, besides those that never are.
    #[arg(skip)]
    pub exclude: Vec<String>,
}

/// Targets of a verb that accepts the whole machine, too.
#[derive(Debug, Clone, clap::Args)]
pub struct TargetsOrSystem {
    #[command(flatten)]
    targets: Targets,

    /// All processes of a systemd unit, like redis-server.service or redis-server
    #[arg(
        long,
        value_name = "UNIT",
        add = candidates::units(),
        conflicts_with = "cgroup",
        help_heading = "Targets"
    )]
    unit: Option<String>,

    /// All processes of the machine except thermo, pid 1, kernel threads and session programs
    #[arg(long, help_heading = "Targets")]
    system: bool,

    /// With --system or --cgroup: skip programs of this name; may be given more than once
    #[arg(long, value_name = "NAME", add = candidates::programs(), help_heading = "Targets")]
    exclude: Vec<String>,
}

impl TargetsOrSystem {
    /// Whether there is a command to start.
    pub fn has_command(&self) -> bool {
        !self.targets.command.is_empty()
    }

    /// The targets, checked.
    ///
    /// # Errors
    /// Those of [`Targets::check`], or the unit has no control group.
    pub fn checked(self) -> anyhow::Result<Targets> {
        let cgroup = match &self.unit {
            Some(unit) => {
                let group = Group::find_unit(Path::new("/"), unit, rustix::process::getuid().as_raw())?;
                Some(group.dir.display().to_string())
            }
            None => self.targets.cgroup.clone(),
        };
        let targets = Targets {
            system: self.system,
            exclude: self.exclude,
            cgroup,
            ..self.targets
        };
        targets
            .check_with("--cgroup PATH, --unit UNIT, --system")
            .map(|()| targets)
    }
}

impl Targets {
    /// # Errors
    /// No target is named, or flags contradict each other.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_with("--cgroup PATH")
    }

    /// `groups`: the flags of the verb that name more than one process, for the message.
    fn check_with(&self, groups: &str) -> anyhow::Result<()> {
        let names_processes = !self.pid.is_empty() || self.cgroup.is_some();
        let running = names_processes || self.system;
        ensure!(
            running || !self.command.is_empty(),
            "no target is named: give --pid PID, {groups}, or a command after --"
        );
        ensure!(
            !running || self.command.is_empty(),
            "both a running target and a command are named: give --pid or --cgroup, or a command after --"
        );
        ensure!(
            !(self.system && names_processes),
            "--system names every process already: leave it out, or leave --pid and --cgroup out"
        );
        ensure!(
            !(self.children && self.no_children),
            "--children and --no-children contradict each other: leave one of them out"
        );
        self.user().map(drop)
    }

    /// The user to run the command as.
    ///
    /// # Errors
    /// There is no such user, or we may not run programs as another one.
    pub fn user(&self) -> anyhow::Result<Option<User>> {
        Ok(self.user.as_deref().map(User::to_run_as).transpose()?)
    }

    /// Whether background processes that the command leaves behind stay targets.
    pub fn keeps_orphans(&self) -> bool {
        !self.command.is_empty() && !self.no_children
    }

    /// The specification for discovery. `started`: the process of the command.
    pub fn spec(&self, started: Option<u32>) -> TargetSpec {
        TargetSpec {
            pids: self.pid.iter().copied().chain(started).collect(),
            children: !self.no_children && (self.children || started.is_some()),
            orphans: self.keeps_orphans(),
            cgroup: self.cgroup.clone(),
            waits_for_cgroup: self.waits_for_cgroup,
            system: self.system,
            selected: false,
            exclude: self.exclude.clone(),
            layout: if self.vma {
                LayoutRule::Mappings
            } else {
                LayoutRule::ThreeRegions
            },
        }
    }

    /// The flags that name these running targets, for commands that are suggested.
    pub fn flags(&self) -> String {
        let mut flags: Vec<String> = self.pid.iter().map(|pid| format!("--pid {pid}")).collect();
        flags.extend(self.cgroup.iter().map(|path| format!("--cgroup {path}")));
        flags.extend(self.system.then(|| "--system".to_owned()));
        if flags.is_empty() {
            flags.push("--pid PID".to_owned());
        }
        if self.children {
            flags.push("--children".to_owned());
        }
        flags.join(" ")
    }

    /// The targets in words, for the metadata of a recording.
    pub fn describe(&self) -> String {
        let pids = self.pid.iter().map(|pid| format!("pid {pid}"));
        let cgroups = self.cgroup.iter().map(|path| format!("cgroup {path}"));
        let command = self
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>();
        let command = (!command.is_empty()).then(|| command.join(" "));
        let system = self.system.then(|| "the whole machine".to_owned());
        pids.chain(cgroups)
            .chain(system)
            .chain(command)
            .collect::<Vec<_>>()
            .join(", ")
    }
}
