//! The plan of a session: the user's settings, checked before anything starts, and then carried out.

use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::{Context as _, ensure};
use thermo_actions::{Actor, MigrationMeter, RefaultMeter};
use thermo_backends::offload::Offloaded;
use thermo_engine::budget::{Method, MethodPolicy, Plan as FirstPlan};
use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Action, Attrs, Context, Scheme};
use thermo_kernel::{clock, signals, subreaper, uname};
use thermo_recording::model::{self, Metadata, SCHEMA};
use thermo_recording::{Recorder, Writer};
use thermo_runtime::Vaddr;
use thermo_runtime::host::{Backend, Host, Requirements, Selected};
use thermo_targets::{TargetError, TargetSpec, TrackedProcesses};
use thermo_term::interrupt;
use thermo_units::{Bytes, Nanos, printable};

use super::cgroup_wait::CgroupWait;
use super::scheme_activity::SchemeActivity;
use super::totals::TotalsReader;
use super::{EndReason, Outcome, ReadSettings, Reloader, RunParams, SessionSink, Settings, scheme_inputs};
use crate::args::{Limits, Monitoring, Targets};
use crate::privileges::SessionNeeds;
use crate::{launch, privileges};

/// A session that has not started.
pub struct Plan {
    /// The targets, as the user named them.
    pub targets: Targets,
    /// Intervals and numbers of regions.
    pub attrs: Attrs,
    /// The other flags about monitoring.
    pub monitoring: Monitoring,
    /// The schemes to apply.
    pub schemes: Vec<Scheme>,
    /// Limits of the schemes.
    pub limits: Limits,
    /// Maximum duration.
    pub duration: Option<Nanos>,
    /// The recording to write; `None` when only the schemes matter.
    pub output: Option<PathBuf>,
    /// Moves between memory nodes.
    pub migration: Migration,
}

/// How memory moves between nodes.
#[derive(Debug, Clone, Default)]
pub struct Migration {
    /// How long memory stays where it was moved to.
    pub cool_down: Nanos,
    /// What was moved.
    pub meter: MigrationMeter,
}

/// Settings that may change while a session runs.
#[derive(Default)]
pub struct Tuning {
    /// The goal of interval tuning; `None` without tuning.
    pub intervals_goal: Option<IntervalsGoal>,
    /// Reads the settings again on SIGHUP. Without it SIGHUP ends the session.
    pub read: Option<ReadSettings>,
}

/// A session that has ended.
pub struct Done {
    /// The result.
    pub outcome: Outcome,
    /// The started command, which may still run.
    pub child: Option<Child>,
}

impl Plan {
    /// Starts the command, if there is one, and monitors until the session ends.
    ///
    /// # Errors
    /// A target does not exist, or a setting is not possible here: then nothing was started and no file was
    /// touched. After the start, only failures of monitoring as a whole.
    pub fn run(self) -> anyhow::Result<Done> {
        self.run_tuned(Tuning::default())
    }

    /// Like [`Plan::run`], with settings that may change as `tuning` says.
    ///
    /// # Errors
    /// Those of [`Plan::run`].
    pub fn run_tuned(mut self, tuning: Tuning) -> anyhow::Result<Done> {
        self.targets.check()?;
        let intervals_goal = match tuning.intervals_goal {
            Some(goal) => Some(goal),
            None => self.monitoring.intervals_goal()?,
        };
        let tuning = Tuning {
            intervals_goal,
            ..tuning
        };
        let (context, selected) = self.prepare(&tuning)?;
        let first = context.first_plan(selected.can_scan());
        // Scans derive regions from pages, so the gaps between mappings are not monitored.
        self.targets.vma |= first.is_some_and(|plan| plan.method == Method::Scan);
        let running = match self.targets.command.as_slice() {
            [] => Some(processes(self.targets.spec(None))?),
            command => launch::check(command).map(|()| None)?,
        };
        interrupt::listen().context("cannot handle Ctrl-C")?;
        if tuning.read.is_some() {
            signals::reload_on_hangup().context("cannot handle SIGHUP")?;
        }
        let reloader = self.reloader(tuning);
        let recorder = self.recorder(&selected, first)?;
        let sink = SessionSink::new(recorder, &self.schemes, self.monitoring.verbose)
            .with_dry_run(self.limits.dry_run);
        match running {
            Some(processes) => {
                let outcome = self.monitor(context, processes, selected, sink, reloader)?;
                Ok(Done { outcome, child: None })
            }
            None => self.monitor_command(context, selected, sink, reloader),
        }
    }

    /// Creates the context and opens the tracker. Nothing is started, and no target is touched.
    fn prepare(&mut self, tuning: &Tuning) -> anyhow::Result<(Context, Selected)> {
        let budget = self.monitoring.budget(tuning.intervals_goal.is_some())?;
        let mut context = Context::new(self.attrs, self.monitoring.seed)?;
        context.set_intervals_goal(tuning.intervals_goal)?;
        context.set_schemes(self.schemes.clone())?;
        let host = Host::probe();
        // In-kernel DAMON applies schemes itself, so it may support actions that we do not.
        if self.monitoring.tracker != "kdamond" {
            self.schemes = self.limits.supported(&host, std::mem::take(&mut self.schemes))?;
            context.set_schemes(self.schemes.clone())?;
        }
        let has_swap = host.facts.swap().0 > Bytes::ZERO;
        let requirements = Requirements {
            schemes: &self.schemes,
            own_context: self.needs_own_context(tuning),
            system: self.targets.system,
        };
        let mut selected = host.open_tracker(&self.monitoring.tracker, self.monitoring.seed, requirements)?;
        if let Some(max_time) = self.monitoring.max_walk_time()? {
            selected.walk_shared(max_time)?;
        }
        ensure!(
            selected.can_scan() || !matches!(budget, Some((_, MethodPolicy::Scan))),
            "tracker {} cannot scan pages: leave --method scan out, or use --tracker pte",
            selected.name
        );
        if !selected.is_offloaded() {
            let scans = selected.can_scan() && budget.is_some_and(|(_, policy)| allows_scans(policy));
            ensure!(
                scans || self.schemes.iter().all(|scheme| scheme.auto_age.is_none()),
                "an automatic age needs scans of every page: leave --method and intervals out and use a tracker that \
                 scans (pte), or give an age"
            );
            if let Some((share, policy)) = budget {
                context = context
                    .with_budget(share, policy)
                    .with_regions_per_target(self.monitoring.regions_per_target())
                    .with_snapshot_interval(self.monitoring.snapshot_interval()?);
            }
            if !self.limits.best_effort {
                scheme_inputs::check(&self.schemes, selected.name != "smaps")?;
            }
        }
        if self.schemes.iter().any(|scheme| scheme.action == Action::LruPrio) {
            selected.keep_active();
        }
        if !has_swap {
            warn_of_missing_swap(&self.schemes);
        }
        if self.monitoring.verbose || selected.is_substitute {
            let (name, reason) = (selected.name, printable(&selected.reason));
            thermo_kernel::message!("thermo: tracker {name}: {reason}");
        }
        Ok((context, selected))
    }

    /// Why in-kernel DAMON cannot run this session, as the end of a sentence; `None` if it can.
    fn needs_own_context(&self, tuning: &Tuning) -> Option<&'static str> {
        if self.monitoring.needs_own_context() {
            Some("has no CPU budget and no scans: leave --cpu and --method out")
        } else if self.limits.dry_run {
            Some("has no dry runs: leave --dry-run out")
        } else if self.targets.vma {
            Some("monitors three address ranges that hold all mappings: leave --vma out")
        } else if tuning.intervals_goal.is_some() {
            Some("is not used with interval goals: leave --intervals-goal and --intervals-autotune out")
        } else {
            None
        }
    }

    fn monitor_command(
        &self,
        context: Context,
        selected: Selected,
        sink: SessionSink,
        reloader: Option<Reloader>,
    ) -> anyhow::Result<Done> {
        let user = self.targets.user()?;
        if self.targets.keeps_orphans() {
            subreaper::become_subreaper().context("cannot adopt background processes of the command")?;
        }
        let mut child = launch::launch(&self.targets.command, user.as_ref())?;
        let processes = command_processes(self.targets.spec(Some(child.id()))).map_err(Into::into);
        let outcome = processes.and_then(|processes| match processes {
            Some(processes) => self.monitor(context, processes, selected, sink, reloader),
            None => Ok(Outcome {
                end: EndReason::TargetsGone,
                elapsed: Nanos::ZERO,
                sink,
                context: None,
            }),
        });
        match outcome {
            Ok(outcome) => Ok(Done {
                outcome,
                child: Some(child),
            }),
            Err(error) => {
                // The command cannot be monitored, so it must not keep running. It may have ended already.
                drop(child.kill());
                drop(child.wait());
                Err(error)
            }
        }
    }

    fn monitor(
        &self,
        context: Context,
        processes: TrackedProcesses,
        selected: Selected,
        mut sink: SessionSink,
        reloader: Option<Reloader>,
    ) -> anyhow::Result<Outcome> {
        // Everything is open, the command has started, and no thread runs yet.
        let needs = SessionNeeds {
            schemes: &self.schemes,
            clears_refs: selected.name == "smaps" || self.monitoring.max_walk_time()?.is_some(),
            has_command: !self.targets.command.is_empty(),
        };
        privileges::keep_only(&needs.capabilities())?;
        let root = Path::new("/");
        let refaults = RefaultMeter::default();
        // Recordings have it all, and changed settings would make the figures of the messages wrong.
        if self.output.is_none() && reloader.is_none() {
            sink.activity = Some(SchemeActivity::new(&self.schemes, self.limits, refaults.clone()));
        }
        let params = RunParams {
            duration: self.duration,
            reloader,
            share: context.plan().map(|plan| plan.share),
            totals: TotalsReader::new(root, &self.targets),
            cgroup_wait: CgroupWait::new(root, &self.targets),
        };
        match selected.backend {
            Backend::Tracker(tracker) => {
                let actor = Actor::new(self.limits.pageout(), self.limits.dry_run)
                    .with_huge(self.limits.huge())
                    .with_refault_meter(refaults)
                    .with_migration(self.migration.cool_down, self.migration.meter.clone());
                let ops = Vaddr::new(root, processes, tracker, actor);
                super::run(context, ops, sink, params)
            }
            Backend::Kernel(claim) => {
                let ops = Offloaded::new(root.to_owned(), processes, claim);
                super::run(context, ops, sink, params)
            }
            Backend::Physical(ops) => super::run(context, *ops, sink, params),
        }
    }

    fn reloader(&self, tuning: Tuning) -> Option<Reloader> {
        let current = Settings {
            attrs: self.attrs,
            intervals_goal: tuning.intervals_goal,
            schemes: self.schemes.clone(),
        };
        tuning.read.map(|read| Reloader::new(read, current))
    }

    fn recorder(&self, selected: &Selected, first: Option<FirstPlan>) -> anyhow::Result<Option<Recorder>> {
        let Some(path) = &self.output else { return Ok(None) };
        let metadata = self.metadata(selected, first);
        let actions = self
            .schemes
            .iter()
            .map(|scheme| scheme.action.name().to_owned())
            .collect();
        Ok(Some(Recorder::new(Writer::create(path, &metadata)?, actions)))
    }

    fn metadata(&self, selected: &Selected, first: Option<FirstPlan>) -> Metadata {
        let attrs = first.map_or(self.attrs, |plan| plan.attrs);
        let uname = uname::read(Path::new("/"));
        Metadata {
            schema: SCHEMA,
            writer: concat!("thermo ", env!("CARGO_PKG_VERSION")).to_owned(),
            kernel: uname.release,
            arch: uname.machine,
            tracker: selected.name.to_owned(),
            tracker_reason: selected.reason.clone(),
            seed: Some(self.monitoring.seed),
            wall_clock_offset_ns: Some(clock::wall_clock_offset_ns()),
            start_ns: clock::monotonic().0,
            targets: self.targets.describe(),
            settings: model::Settings {
                sample_ns: Some(attrs.sample.0),
                aggr_ns: Some(attrs.aggr.0),
                update_ns: Some(attrs.update.0),
                min_nr_regions: Some(attrs.min_nr_regions as u64),
                max_nr_regions: Some(attrs.max_nr_regions as u64),
                cpu_budget_percent: first.map(|plan| plan.share.percent()),
            },
            schemes: self.schemes.iter().map(thermo_schemes::describe).collect(),
            imported: false,
        }
    }
}

fn processes(spec: TargetSpec) -> Result<TrackedProcesses, TargetError> {
    TrackedProcesses::new(Path::new("/"), spec)
}

/// The processes of a command that was just started; `None` when it has ended and left no background process.
fn command_processes(spec: TargetSpec) -> Result<Option<TrackedProcesses>, TargetError> {
    match processes(spec) {
        Ok(processes) => Ok(Some(processes).filter(TrackedProcesses::any_left)),
        Err(TargetError::NoProcess { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

const fn allows_scans(policy: MethodPolicy) -> bool {
    matches!(policy, MethodPolicy::Auto | MethodPolicy::Scan)
}

fn warn_of_missing_swap(schemes: &[Scheme]) {
    let has_pageout = schemes.iter().any(|scheme| scheme.action == Action::Pageout);
    if has_pageout {
        thermo_kernel::message!(
            "thermo: there is no swap, so pageout frees file pages only and no anonymous memory: add swap, for example zram"
        );
    }
}
