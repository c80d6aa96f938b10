//! What a session is going to do, put together from what the user said and checked before anything starts.

use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::{Context as _, ensure};
use thermo_actions::Actor;
use thermo_backends::offload::Offloaded;
use thermo_engine::budget::{Method, MethodPolicy, Plan as FirstPlan};
use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Action, Attrs, Context, Scheme};
use thermo_kernel::{clock, signals, subreaper, uname};
use thermo_recording::model::{self, Metadata, SCHEMA};
use thermo_recording::{Recorder, Writer};
use thermo_runtime::Vaddr;
use thermo_targets::{TargetError, TargetSpec, TrackedProcesses};
use thermo_term::interrupt;
use thermo_units::{Bytes, Nanos};

use super::host::{Backend, Requirements, Selected};
use super::totals::TotalsReader;
use super::{End, Host, Outcome, Read, Reloader, SessionSink, Settings, Settled, inputs};
use crate::args::{Limits, Monitoring, Targets};
use crate::launch;

/// A session that could start.
pub struct Plan {
    /// What to watch, as the user said it.
    pub targets: Targets,
    /// How to look.
    pub attrs: Attrs,
    /// The rest of how to look.
    pub monitoring: Monitoring,
    /// What to do.
    pub schemes: Vec<Scheme>,
    /// How far that may go.
    pub limits: Limits,
    /// For how long.
    pub duration: Option<Nanos>,
    /// The recording to make; none where only the actions count.
    pub output: Option<PathBuf>,
}

/// What may change while a session runs.
#[derive(Default)]
pub struct Tuning {
    /// What the intervals are tuned towards, if they are.
    pub intervals_goal: Option<IntervalsGoal>,
    /// Where settings come from when a hangup asks for new ones; without it a hangup ends the session.
    pub read: Option<Read>,
}

/// What a session that has ended leaves.
pub struct Done {
    /// How it went.
    pub outcome: Outcome,
    /// The command that was started, to be waited for.
    pub child: Option<Child>,
}

impl Plan {
    /// Starts the command, if there is one, and watches until the session is over.
    ///
    /// # Errors
    /// Something named is not there or not possible here: then nothing was started and no file was touched.
    /// Later, only what the system as a whole refuses.
    pub fn carry_out(self) -> anyhow::Result<Done> {
        self.carry_out_tuned(Tuning::default())
    }

    /// The same, changing as `tuning` says.
    ///
    /// # Errors
    /// Those of [`Plan::carry_out`].
    pub fn carry_out_tuned(mut self, tuning: Tuning) -> anyhow::Result<Done> {
        self.targets.check()?;
        let intervals_goal = match tuning.intervals_goal {
            Some(goal) => Some(goal),
            None => self.monitoring.intervals_goal()?,
        };
        let tuning = Tuning {
            intervals_goal,
            ..tuning
        };
        let (context, chosen) = self.prepare(&tuning)?;
        let first = context.first_plan(chosen.can_scan());
        // Regions of a scan are derived from pages: the gaps between mappings are nobody's.
        self.targets.vma |= first.is_some_and(|plan| plan.method == Method::Scan);
        let running = match self.targets.command.as_slice() {
            [] => Some(members(self.targets.spec(None))?),
            command => launch::check(command).map(|()| None)?,
        };
        interrupt::listen().context("cannot listen to Ctrl-C")?;
        if tuning.read.is_some() {
            signals::reload_on_hangup().context("cannot listen to SIGHUP")?;
        }
        let reloader = self.reloader(tuning);
        let recorder = self.recorder(&chosen, first)?;
        let sink =
            SessionSink::new(recorder, &self.schemes, self.monitoring.verbose).dry(self.limits.dry_run);
        match running {
            Some(members) => {
                let outcome = self.watch(context, members, chosen.looker, sink, reloader)?;
                Ok(Done { outcome, child: None })
            }
            None => self.watch_command(context, chosen.looker, sink, reloader),
        }
    }

    /// The context, and what it looks through. Nothing is started and no target is touched yet.
    fn prepare(&mut self, tuning: &Tuning) -> anyhow::Result<(Context, Selected)> {
        let budget = self.monitoring.budget(tuning.intervals_goal.is_some())?;
        let mut context = Context::new(self.attrs, self.monitoring.seed)?;
        context.set_intervals_goal(tuning.intervals_goal)?;
        context.set_schemes(self.schemes.clone())?;
        let host = Host::probe();
        // What the kernel does by itself need not be among what we can do.
        if self.monitoring.tracker != "kdamond" {
            self.schemes = self.limits.possible(&host, std::mem::take(&mut self.schemes))?;
            context.set_schemes(self.schemes.clone())?;
        }
        warn_of_no_swap(&host, &self.schemes);
        let wish = Requirements {
            schemes: &self.schemes,
            own_context: self.needs_own_context(tuning),
            system: self.targets.system,
        };
        let mut chosen = host.tracker(&self.monitoring.tracker, self.monitoring.seed, wish)?;
        if let Some(longest) = self.monitoring.longest_walk()? {
            chosen.walk_shared(longest)?;
        }
        ensure!(
            chosen.can_scan() || !matches!(budget, Some((_, MethodPolicy::Scan))),
            "tracker {} cannot scan pages: leave --method scan out, or use --tracker pte",
            chosen.name
        );
        if !chosen.offloads() {
            if let Some((share, policy)) = budget {
                context = context
                    .with_budget(share, policy)
                    .with_regions_each(self.monitoring.regions_each())
                    .with_snapshot_interval(self.monitoring.snapshot_interval()?);
            }
            if !self.limits.best_effort {
                inputs::check(&self.schemes, chosen.name != "smaps")?;
            }
        }
        if self.schemes.iter().any(|scheme| scheme.action == Action::LruPrio) {
            chosen.keep_active();
        }
        chosen.tell(self.monitoring.verbose);
        Ok((context, chosen))
    }

    /// What of this session only a context of our own can do, if there is anything.
    fn needs_own_context(&self, tuning: &Tuning) -> Option<&'static str> {
        if self.monitoring.asks_for_budget() {
            Some("keeps no CPU budget and does not scan: leave --cpu and --method out")
        } else if self.limits.dry_run {
            Some("cannot but do what it decides: leave --dry-run out")
        } else if self.targets.vma {
            Some("looks at the three spans that hold all mappings: leave --vma out")
        } else if tuning.intervals_goal.is_some() {
            Some("is not given goals of intervals")
        } else {
            None
        }
    }

    fn watch_command(
        &self,
        context: Context,
        looker: Backend,
        sink: SessionSink,
        reloader: Option<Reloader>,
    ) -> anyhow::Result<Done> {
        if self.targets.keeps_orphans() {
            subreaper::take_in_orphans()
                .context("cannot take in what the command leaves in the background")?;
        }
        let mut child = launch::launch(&self.targets.command)?;
        let watched = members_of_command(self.targets.spec(Some(child.id()))).map_err(Into::into);
        let outcome = watched.and_then(|members| match members {
            Some(members) => self.watch(context, members, looker, sink, reloader),
            None => Ok(Outcome {
                end: End::TargetsGone,
                sink,
            }),
        });
        match outcome {
            Ok(outcome) => Ok(Done {
                outcome,
                child: Some(child),
            }),
            Err(error) => {
                // It was started to be watched, and cannot be. It may have ended by itself meanwhile.
                drop(child.kill());
                drop(child.wait());
                Err(error)
            }
        }
    }

    fn watch(
        &self,
        context: Context,
        members: TrackedProcesses,
        looker: Backend,
        sink: SessionSink,
        reloader: Option<Reloader>,
    ) -> anyhow::Result<Outcome> {
        let root = Path::new("/");
        let settled = Settled {
            duration: self.duration,
            reloader,
            share: context.plan().map(|plan| plan.share),
            totals: TotalsReader::new(root, &self.targets),
        };
        match looker {
            Backend::Tracker(tracker) => {
                let actor =
                    Actor::new(self.limits.pageout(), self.limits.dry_run).with_huge(self.limits.huge());
                let ops = Vaddr::new(root, members, tracker, actor);
                super::run(context, ops, sink, settled)
            }
            Backend::Kernel(claim) => {
                let ops = Offloaded::new(root.to_owned(), members, claim);
                super::run(context, ops, sink, settled)
            }
            // The processes it is of are not asked for.
            Backend::Machine(ops) => super::run(context, *ops, sink, settled),
        }
    }

    fn reloader(&self, tuning: Tuning) -> Option<Reloader> {
        let now = Settings {
            attrs: self.attrs,
            intervals_goal: tuning.intervals_goal,
            schemes: self.schemes.clone(),
        };
        tuning.read.map(|read| Reloader::new(read, now))
    }

    fn recorder(&self, chosen: &Selected, first: Option<FirstPlan>) -> anyhow::Result<Option<Recorder>> {
        let Some(path) = &self.output else { return Ok(None) };
        let metadata = self.metadata(chosen, first);
        let actions = self
            .schemes
            .iter()
            .map(|scheme| scheme.action.name().to_owned())
            .collect();
        Ok(Some(Recorder::new(Writer::create(path, &metadata)?, actions)))
    }

    fn metadata(&self, chosen: &Selected, first: Option<FirstPlan>) -> Metadata {
        let attrs = first.map_or(self.attrs, |plan| plan.attrs);
        let uname = uname::read(Path::new("/"));
        Metadata {
            schema: SCHEMA,
            writer: concat!("thermo ", env!("CARGO_PKG_VERSION")).to_owned(),
            kernel: uname.release,
            arch: uname.machine,
            tracker: chosen.name.to_owned(),
            tracker_reason: chosen.reason.clone(),
            seed: self.monitoring.seed,
            wall_clock_offset_ns: clock::wall_clock_offset_ns(),
            start_ns: clock::monotonic().0,
            targets: self.targets.describe(),
            settings: model::Settings {
                sample_ns: attrs.sample.0,
                aggr_ns: attrs.aggr.0,
                update_ns: attrs.update.0,
                min_nr_regions: attrs.min_nr_regions as u64,
                max_nr_regions: attrs.max_nr_regions as u64,
                cpu_budget_percent: first.map(|plan| plan.share.percent()),
            },
            schemes: self.schemes.iter().map(thermo_schemes::sentence).collect(),
        }
    }
}

fn members(spec: TargetSpec) -> Result<TrackedProcesses, TargetError> {
    TrackedProcesses::new(Path::new("/"), spec)
}

/// The targets of a command that was just started; none when it has ended already and left nothing in the background.
fn members_of_command(spec: TargetSpec) -> Result<Option<TrackedProcesses>, TargetError> {
    match members(spec) {
        Ok(members) => Ok(Some(members).filter(TrackedProcesses::any_left)),
        Err(TargetError::NoProcess { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Without swap a page-out frees file pages only, which is better known before than wondered at after.
fn warn_of_no_swap(host: &Host, schemes: &[Scheme]) {
    let pages_out = schemes.iter().any(|scheme| scheme.action == Action::Pageout);
    if pages_out && host.facts.swap().0 == Bytes::ZERO {
        eprintln!(
            "thermo: there is no swap, so pageout can free file pages only, no anonymous memory: add swap (zram will do)"
        );
    }
}
