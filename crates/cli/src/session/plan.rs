//! What a session is going to do, put together from what the user said and checked before anything starts.

use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::Context as _;
use thermo_core::{Action, Attrs, Bytes, Context, Nanos, Scheme};
use thermo_ops::targets::{Members, TargetError, TargetSpec};
use thermo_ops::{Actor, PageoutLimits, Vaddr};
use thermo_record::model::{Metadata, SCHEMA, Settings};
use thermo_record::{Recorder, Writer};
use thermo_sys::{clock, subreaper, uname};

use super::host::Chosen;
use super::{End, Host, Outcome, SessionSink};
use crate::args::{Limits, Monitoring, Targets};
use crate::{interrupt, launch};

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
    pub fn carry_out(mut self) -> anyhow::Result<Done> {
        self.targets.check()?;
        let mut context = Context::new(self.attrs, self.monitoring.seed)?;
        context.set_schemes(self.schemes.clone())?;
        let host = Host::probe();
        self.schemes = self.limits.possible(&host, std::mem::take(&mut self.schemes))?;
        context.set_schemes(self.schemes.clone())?;
        warn_of_no_swap(&host, &self.schemes);
        let chosen = host.tracker(&self.monitoring.tracker, self.monitoring.seed)?;
        let running = match self.targets.command.as_slice() {
            [] => Some(members(self.targets.spec(None))?),
            command => launch::check(command).map(|()| None)?,
        };
        interrupt::listen().context("cannot listen to Ctrl-C")?;
        let sink = SessionSink::new(self.recorder(&chosen)?, &self.schemes);
        match running {
            Some(members) => {
                let outcome = self.watch(context, members, chosen, sink, None)?;
                Ok(Done { outcome, child: None })
            }
            None => self.watch_command(context, chosen, sink),
        }
    }

    fn watch_command(&self, context: Context, chosen: Chosen, sink: SessionSink) -> anyhow::Result<Done> {
        if self.targets.keeps_orphans() {
            subreaper::take_in_orphans()
                .context("cannot take in what the command leaves in the background")?;
        }
        let mut child = launch::launch(&self.targets.command)?;
        let watched = members_of_command(self.targets.spec(Some(child.id()))).map_err(Into::into);
        let outcome = watched.and_then(|members| match members {
            Some(members) => self.watch(context, members, chosen, sink, Some(child.id())),
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
        members: Members,
        chosen: Chosen,
        sink: SessionSink,
        command: Option<u32>,
    ) -> anyhow::Result<Outcome> {
        let actor = Actor::new(PageoutLimits::default(), self.limits.dry_run);
        let ops = Vaddr::new(Path::new("/"), members, chosen.tracker, actor);
        super::run(context, ops, sink, self.duration, command)
    }

    fn recorder(&self, chosen: &Chosen) -> anyhow::Result<Option<Recorder>> {
        let Some(path) = &self.output else { return Ok(None) };
        let metadata = self.metadata(chosen);
        let actions = self
            .schemes
            .iter()
            .map(|scheme| scheme.action.name().to_owned())
            .collect();
        Ok(Some(Recorder::new(Writer::create(path, &metadata)?, actions)))
    }

    fn metadata(&self, chosen: &Chosen) -> Metadata {
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
            settings: Settings {
                sample_ns: self.attrs.sample.0,
                aggr_ns: self.attrs.aggr.0,
                update_ns: self.attrs.update.0,
                min_nr_regions: self.attrs.min_nr_regions as u64,
                max_nr_regions: self.attrs.max_nr_regions as u64,
                cpu_budget_percent: self.monitoring.cpu.map(|share| f64::from(share.0) / 10.0),
            },
            schemes: self.schemes.iter().map(thermo_scheme::sentence).collect(),
        }
    }
}

fn members(spec: TargetSpec) -> Result<Members, TargetError> {
    Members::new(Path::new("/"), spec)
}

/// The targets of a command that was just started; none when it has ended already.
fn members_of_command(spec: TargetSpec) -> Result<Option<Members>, TargetError> {
    match members(spec) {
        Ok(members) => Ok(Some(members)),
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
