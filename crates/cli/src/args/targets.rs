//! What to look at.

use std::ffi::OsString;

use anyhow::ensure;
use thermo_targets::{LayoutRule, TargetSpec};

/// Processes, by number, by control group, or started here.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Targets")]
pub struct Targets {
    /// A process; may be given more than once
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,

    /// All processes of a control group and of those below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,

    /// Follow the processes that targets start (on with a command)
    #[arg(long, overrides_with = "no_children")]
    children: bool,

    /// Do not follow the processes that targets start
    #[arg(long, overrides_with = "children")]
    no_children: bool,

    /// Look at each mapping by itself, not at the three spans that hold them all
    #[arg(long)]
    pub vma: bool,

    /// A command to start and look at; thermo ends with its status
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,

    /// Every process of the machine; only verbs that consent to it have a flag for this.
    #[arg(skip)]
    pub system: bool,

    /// Programs that are left alone besides those that always are.
    #[arg(skip)]
    pub exclude: Vec<String>,
}

/// Targets of a verb that can also take the whole machine.
#[derive(Debug, Clone, clap::Args)]
pub struct TargetsOrMachine {
    #[command(flatten)]
    targets: Targets,

    /// All processes of the machine but ourselves, pid 1, kernel threads and session programs
    #[arg(long, help_heading = "Targets")]
    system: bool,

    /// A program to leave alone, by its name; may be given more than once
    #[arg(long, value_name = "NAME", help_heading = "Targets")]
    exclude: Vec<String>,
}

impl TargetsOrMachine {
    /// Whether there is a command to start.
    pub fn has_command(&self) -> bool {
        !self.targets.command.is_empty()
    }

    /// What was named.
    ///
    /// # Errors
    /// Those of [`Targets::check`].
    pub fn checked(self) -> anyhow::Result<Targets> {
        let targets = Targets {
            system: self.system,
            exclude: self.exclude,
            ..self.targets
        };
        targets.check_with("--cgroup PATH, --system").map(|()| targets)
    }
}

impl Targets {
    /// # Errors
    /// Nothing is named, or both something that runs and a command.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_with("--cgroup PATH")
    }

    fn check_with(&self, groups: &str) -> anyhow::Result<()> {
        let running = !self.pid.is_empty() || self.cgroup.is_some() || self.system;
        ensure!(
            running || !self.command.is_empty(),
            "no target is named: give --pid PID, {groups}, or a command after --"
        );
        ensure!(
            !running || self.command.is_empty(),
            "both a running target and a command are named: give --pid or --cgroup, or a command after --"
        );
        Ok(())
    }

    /// Whether what a command leaves in the background when it ends stays a target.
    pub fn keeps_orphans(&self) -> bool {
        !self.command.is_empty() && !self.no_children
    }

    /// What to watch, with the command that was started as process `started`.
    pub fn spec(&self, started: Option<u32>) -> TargetSpec {
        TargetSpec {
            pids: self.pid.iter().copied().chain(started).collect(),
            children: !self.no_children && (self.children || started.is_some()),
            orphans: self.keeps_orphans(),
            cgroup: self.cgroup.clone(),
            system: self.system,
            exclude: self.exclude.clone(),
            layout: if self.vma {
                LayoutRule::Mappings
            } else {
                LayoutRule::ThreeRegions
            },
        }
    }

    /// In words, for a recording.
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
