//! The kdamond of a policy: watches its processes, and applies its schemes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use thermo_actions::{Actor, HeldProcesses, MigrationMeter, Returns, check_destinations};
use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::ops::TargetId;
use thermo_engine::scheme::SchemeError;
use thermo_engine::{Action, Attrs, Context, Scheme};
use thermo_kernel::clock;
use thermo_recording::history::Clocks;
use thermo_recording::model::Record;
use thermo_runtime::Vaddr;
use thermo_runtime::host::{Host, OwnTracker};
use thermo_runtime::kdamond::{CpuTime, ExitReason, Kdamond, Parts};
use thermo_targets::{LayoutRule, TargetSpec, TrackedProcesses};
use thermo_units::Nanos;

use super::MakeHistory;
use super::sink::{PolicySink, Report};
use crate::api::Mode;
use crate::config::PolicyConfig;
use crate::process_table::PolicyProcess;

/// Time between two looks of a dry run.
const DRY_RUN_INTERVAL: Nanos = Nanos::secs(60);

/// A worker in the midst of an action is left alone after this time: it is asked again with the next tick.
const COLLECT_TIME: Duration = Duration::from_millis(100);

/// The kdamond of a policy. No call but [`Worker::set_mode`] and [`Worker::stop`] waits for an action.
pub struct Worker {
    kdamond: Kdamond<Vaddr, PolicySink>,
    /// The answer that the kdamond gives as soon as its action is done.
    pending: Option<Receiver<Answer>>,
    /// Set while nothing may be done: the actor then skips all memory.
    hold: Arc<AtomicBool>,
    /// Name of the tracker.
    pub tracker: &'static str,
    /// Whether it sees every page.
    can_scan: bool,
}

/// How far a worker is.
pub enum Progress {
    /// It has ended.
    Ended,
    /// It acts, and tells later what it did.
    Busy,
    /// What it saw and did since the last call.
    Done(Box<Collected>),
}

/// What the kdamond answers.
struct Answer {
    report: Report,
    returns: Vec<(TargetId, Returns)>,
    acting: Nanos,
    wants_more_budget: bool,
}

/// What a worker saw and did since the last call.
pub struct Collected {
    /// Seen and done.
    pub report: Report,
    /// What became of memory that was paged out.
    pub returns: Vec<(TargetId, Returns)>,
    /// CPU time since the worker started.
    pub cpu: CpuTime,
    /// CPU time of actions since the worker started.
    pub acting: Nanos,
    /// Whether it waits for its budget.
    pub wants_more_budget: bool,
}

/// Why a worker cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The schemes and the machine do not fit.
    #[error("{0}")]
    Impossible(String),
    /// No thread can be started.
    #[error("cannot start the kdamond thread: {0}")]
    Thread(#[from] io::Error),
}

impl Worker {
    /// Starts thread `kdamond.{number}` with `share` of a CPU. It does nothing to any memory while `hold` is
    /// set, and nothing to that of `held` processes.
    ///
    /// # Errors
    /// The machine cannot do what the policy asks for, or no thread can be started.
    pub fn start(
        number: u32,
        config: &PolicyConfig,
        mode: Mode,
        share: CpuShare,
        make_history: &MakeHistory,
        (hold, held): (Arc<AtomicBool>, HeldProcesses),
    ) -> Result<Self, StartError> {
        let impossible = |error: &dyn ToString| StartError::Impossible(error.to_string());
        let root = Path::new("/");
        let mut context = Context::new(Attrs::default(), u64::from(number))
            .map_err(|error| impossible(&error))?
            .with_budget(share, MethodPolicy::Auto);
        context
            .set_schemes(schemes(config, mode))
            .map_err(|error| impossible(&error))?;
        context.set_keeps_ages(mode != Mode::Act);
        let opened = Host::probe().open_own_tracker(u64::from(number));
        let OwnTracker {
            mut tracker,
            name: tracker_name,
            reason: tracker_reason,
            is_substitute,
        } = opened.map_err(|error| impossible(&error))?;
        if is_substitute {
            thermo_kernel::message!(
                "thermo: policy {}: tracker {tracker_name}: {tracker_reason}",
                config.name
            );
        }
        let can_scan = tracker.can_scan();
        check_actions(config, mode, can_scan)?;
        if config
            .schemes
            .iter()
            .any(|scheme| scheme.action == Action::LruPrio)
        {
            tracker.keep_active_pages();
        }
        let spec = TargetSpec {
            layout: match can_scan {
                true => LayoutRule::Mappings,
                false => LayoutRule::ThreeRegions,
            },
            ..TargetSpec::for_selection()
        };
        let processes = TrackedProcesses::new(root, spec).map_err(|error| impossible(&error))?;
        let actor = Actor::new(config.limits, mode != Mode::Act)
            .with_migration(config.cool_down, MigrationMeter::default())
            .with_cancel_flag(Arc::clone(&hold))
            .with_held_processes(held);
        let ops = Vaddr::new(root, processes, tracker, actor);
        let mut sink = PolicySink::new(make_history(config, tracker_name));
        sink.set_actions(actions(config, mode));
        let kdamond = Kdamond::start(number, Parts { context, ops, sink })?;
        Ok(Self {
            kdamond,
            pending: None,
            hold,
            tracker: tracker_name,
            can_scan,
        })
    }

    /// Watches these processes from now on.
    pub fn select(&self, processes: &[PolicyProcess]) {
        let selection = processes
            .iter()
            .map(|process| (process.pid, process.starttime))
            .collect();
        let names: BTreeMap<u32, String> = processes
            .iter()
            .map(|process| (process.pid, process.target.clone()))
            .collect();
        self.kdamond.begin_call(move |parts| {
            parts.sink.set_names(names);
            parts.ops.targets_mut().select(selection);
            parts.context.update_targets_next();
        });
    }

    /// Changes what the policy may do.
    ///
    /// # Errors
    /// The schemes are not possible.
    pub fn set_mode(&self, config: &PolicyConfig, mode: Mode) -> Result<(), String> {
        check_actions(config, mode, self.can_scan).map_err(|error| error.to_string())?;
        let (schemes, actions) = (schemes(config, mode), actions(config, mode));
        let changed = self.kdamond.call(move |parts| {
            parts.sink.set_actions(actions);
            parts.ops.set_dry_run(mode != Mode::Act);
            parts.context.set_schemes(schemes)?;
            parts.context.set_keeps_ages(mode != Mode::Act);
            Ok::<_, SchemeError>(())
        });
        changed.unwrap_or(Ok(())).map_err(|error| error.to_string())
    }

    /// Changes the share of the budget.
    pub fn set_share(&self, share: CpuShare) {
        self.kdamond
            .begin_call(move |parts| parts.context.set_cpu_share(share));
    }

    /// What was seen and done since the last call.
    pub fn collect(&mut self) -> Progress {
        let received = match self.pending.take() {
            // It has had its time.
            Some(pending) => pending
                .try_recv()
                .map_err(|error| (error == TryRecvError::Empty, pending)),
            None => {
                let Some(pending) = self.kdamond.begin_call(answer) else {
                    return Progress::Ended;
                };
                let received = pending.recv_timeout(COLLECT_TIME);
                received.map_err(|error| (error == RecvTimeoutError::Timeout, pending))
            }
        };
        match received {
            Ok(answer) => Progress::Done(Box::new(Collected {
                report: answer.report,
                returns: answer.returns,
                cpu: self.kdamond.cpu_time(),
                acting: answer.acting,
                wants_more_budget: answer.wants_more_budget,
            })),
            Err((true, pending)) => {
                self.pending = Some(pending);
                Progress::Busy
            }
            Err((false, _)) => Progress::Ended,
        }
    }

    /// Writes what is due of the history, with `records` that the agent has read.
    pub fn write_history(&self, records: Vec<Record>, now: Clocks) {
        self.kdamond
            .begin_call(move |parts| parts.sink.write_history(&records, now));
    }

    /// Stops the thread. Returns why it had ended before, if it had.
    pub fn stop(self) -> Option<String> {
        self.hold.store(true, Ordering::Relaxed);
        let mut ended = self.kdamond.stop();
        let unwritten = ended.parts.sink.finish();
        if let Some(warning) = unwritten.first() {
            thermo_kernel::message!("thermo: {}", thermo_units::printable(warning));
        }
        match ended.reason {
            ExitReason::Failed(error) => Some(error.to_string()),
            ExitReason::Stopped | ExitReason::TargetsGone => None,
        }
    }
}

fn answer(parts: &mut Parts<Vaddr, PolicySink>) -> Answer {
    let states = parts.context.schemes().iter();
    let acting = states.map(|state| state.stats().spent).sum();
    let now = clock::monotonic();
    Answer {
        returns: parts.ops.check_returns(now),
        report: parts.sink.take(),
        acting,
        wants_more_budget: parts.context.wants_more_budget(now),
    }
}

fn schemes(config: &PolicyConfig, mode: Mode) -> Vec<Scheme> {
    match mode {
        Mode::Observe => Vec::new(),
        Mode::Act => config.schemes.clone(),
        // Memory keeps matching while nothing is done to it, so it is looked at less often.
        Mode::DryRun => {
            let rarely = |scheme: &Scheme| Scheme {
                apply_interval: Some(DRY_RUN_INTERVAL),
                ..scheme.clone()
            };
            config.schemes.iter().map(rarely).collect()
        }
    }
}

fn actions(config: &PolicyConfig, mode: Mode) -> Vec<String> {
    let names = schemes(config, mode)
        .into_iter()
        .map(|scheme| scheme.action.name().to_owned());
    names.collect()
}

/// Whether the machine can do what the policy asks for.
fn check_actions(config: &PolicyConfig, mode: Mode, can_scan: bool) -> Result<(), StartError> {
    for scheme in &config.schemes {
        check_destinations(Path::new("/"), &scheme.destinations)
            .map_err(|error| StartError::Impossible(error.to_string()))?;
    }
    let needs_scans = config.schemes.iter().any(|scheme| scheme.auto_age.is_some());
    if mode != Mode::Observe && needs_scans && !can_scan {
        return Err(StartError::Impossible(
            "an automatic age needs scans of every page, and page tables cannot be read here: `thermo doctor` says \
             why; or give min_age"
                .to_owned(),
        ));
    }
    Ok(())
}
