//! A policy while the agent runs: its kdamond, its targets, its guard.

mod collect;
pub mod sink;
mod target;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thermo_engine::Action;
use thermo_engine::budget::CpuShare;
use thermo_engine::ops::Applied;
use thermo_engine::scheme::Age;
use thermo_recording::history::SegmentWriter;
use thermo_runtime::target_records::MappingChanges;
use thermo_units::{Bytes, Nanos};

pub use self::target::TargetState;
use self::worker::Worker;
use crate::api::{self, Mode, UnixMillis};
use crate::budget_division::{Need, RecentShare};
use crate::config::PolicyConfig;
use crate::guard::{Exceeded, Guard, Measured, Verdict};
use crate::pressure::{StallMeter, SwapState};

/// After a failure, a policy is started again after this time.
const RESTART_AFTER: Nanos = Nanos::secs(30);

/// A policy.
pub struct Policy {
    /// As configured.
    pub config: PolicyConfig,
    /// What it may do now.
    pub mode: Mode,
    /// Whether a user paused it.
    pub paused: bool,
    /// Why it cannot run.
    pub error: Option<String>,
    /// Its targets by name.
    pub targets: BTreeMap<String, TargetState>,
    /// Number of its kdamond.
    number: u32,
    guard: Guard,
    /// Set while nothing may be done. Others set it, too, to stop an action at once.
    hold: Arc<AtomicBool>,
    worker: Option<Worker>,
    processes: Vec<(u32, u64, String)>,
    share: CpuShare,
    /// What it used of the budget lately, and whether it waits for it.
    used: RecentShare,
    wants_more: bool,
    last_collect: Nanos,
    is_long_busy: bool,
    stall: StallMeter,
    /// CPU time of watching and acting of workers that have ended, and of the present one at the last call.
    watching: Nanos,
    acting: Nanos,
    /// As the present worker told last.
    last_cpu: (Nanos, Nanos),
    restart_at: Nanos,
    next_sizes: Nanos,
    next_mappings: Nanos,
    mapping_changes: MappingChanges,
    /// Automatic ages that were chosen, by scheme; `None`: nothing is acted on.
    ages: BTreeMap<usize, Option<Nanos>>,
    /// Makes the writer of the history for a worker that starts.
    make_history: MakeHistory,
}

/// Makes the writer of a policy's history, which is seen by the tracker of this name; `None`: no history is
/// kept.
pub type MakeHistory = Box<dyn Fn(&PolicyConfig, &'static str) -> Option<SegmentWriter> + Send>;

/// What happened since the last call.
#[derive(Debug, Default)]
pub struct Activity {
    /// Results of actions: scheme and target.
    pub applied: BTreeMap<(usize, String), Applied>,
    /// What became of memory that was paged out, by target.
    pub returns: Vec<(String, thermo_actions::Returns)>,
    /// Changes of automatic ages.
    pub ages: Vec<String>,
    /// Warnings.
    pub warnings: Vec<String>,
    /// CPU time of watching and of acting.
    pub cpu: (Nanos, Nanos),
}

impl Policy {
    /// A policy that watches nothing yet. `share` is its part of the budget at first.
    #[must_use]
    pub fn new(number: u32, config: PolicyConfig, share: CpuShare, make_history: MakeHistory) -> Self {
        Self {
            mode: config.mode,
            config,
            paused: false,
            error: None,
            targets: BTreeMap::new(),
            number,
            guard: Guard::default(),
            hold: Arc::default(),
            worker: None,
            processes: Vec::new(),
            share,
            used: RecentShare::default(),
            // Until it has seen its memory once.
            wants_more: true,
            last_collect: Nanos::ZERO,
            is_long_busy: false,
            stall: StallMeter::default(),
            watching: Nanos::ZERO,
            acting: Nanos::ZERO,
            last_cpu: (Nanos::ZERO, Nanos::ZERO),
            restart_at: Nanos::ZERO,
            next_sizes: Nanos::ZERO,
            next_mappings: Nanos::ZERO,
            mapping_changes: MappingChanges::default(),
            ages: BTreeMap::new(),
            make_history,
        }
    }

    /// Watches these processes from now on.
    pub fn select(&mut self, root: &Path, processes: Vec<(u32, u64, String)>) {
        if processes == self.processes {
            return;
        }
        self.processes = processes;
        let pids: Vec<u32> = self.processes.iter().map(|(pid, ..)| *pid).collect();
        self.stall.set_processes(root, &pids);
        match (&self.worker, self.processes.is_empty()) {
            (Some(worker), false) => worker.select(&self.processes),
            // A policy without processes needs no thread.
            (Some(_), true) => self.stop(),
            (None, _) => {}
        }
    }

    /// Starts the kdamond if there is something to watch and it does not run.
    pub fn start_if_needed(&mut self, now: Nanos) {
        if self.worker.is_some() || self.processes.is_empty() || now < self.restart_at {
            return;
        }
        let hold = Arc::clone(&self.hold);
        match Worker::start(
            self.number,
            &self.config,
            self.mode,
            self.share,
            &self.make_history,
            hold,
        ) {
            Ok(worker) => {
                self.last_collect = now;
                worker.hold(self.is_held(), self.mode);
                worker.select(&self.processes);
                self.worker = Some(worker);
                self.error = None;
            }
            Err(error) => {
                self.error = Some(error.to_string());
                self.restart_at = now.saturating_add(RESTART_AFTER);
            }
        }
    }

    /// Stops the kdamond. What was paged out stays out.
    pub fn stop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.error = worker.stop();
        }
        self.last_cpu = (Nanos::ZERO, Nanos::ZERO);
        (self.used, self.wants_more) = (RecentShare::default(), true);
        self.targets.values_mut().for_each(TargetState::begin);
    }

    /// Lets the guard judge the policy.
    pub fn judge(&mut self, now: Nanos, swap: &SwapState) -> Option<Verdict> {
        let stall = self.stall.measure(now);
        if self.mode != Mode::Act || self.worker.is_none() {
            return None;
        }
        let measured = Measured {
            refaults: self.targets.values_mut().map(|target| target.refaults(now)).sum(),
            working_set: self.targets.values().map(TargetState::working_set).sum(),
            stall,
            free_swap: swap.free,
        };
        let verdict = self.guard.judge(&self.config.bounds, &measured, now);
        if verdict.is_some() {
            self.apply_hold();
        }
        verdict
    }

    /// Pauses the policy, or lets it go on: then also if the guard had suspended it.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        if !paused {
            self.guard.release();
            // The guard would judge by what it has suspended the policy for.
            self.targets.values_mut().for_each(TargetState::forget_refaults);
        }
        self.apply_hold();
    }

    /// Changes what the policy may do.
    ///
    /// # Errors
    /// It has nothing to do, or the machine cannot do it.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), String> {
        if mode != Mode::Observe && self.config.schemes.is_empty() {
            return Err(format!(
                "policy {} has nothing to do: add a preset or schemes to its configuration",
                self.config.name
            ));
        }
        if let Some(worker) = &self.worker {
            worker.set_mode(&self.config, mode)?;
        }
        self.mode = mode;
        self.apply_hold();
        Ok(())
    }

    /// Whether nothing may be done now.
    fn is_held(&self) -> bool {
        self.paused || self.suspension().is_some()
    }

    /// The suspension by the guard, which judges only policies that act.
    fn suspension(&self) -> Option<(Exceeded, Nanos)> {
        self.guard.suspended().filter(|_| self.mode == Mode::Act)
    }

    /// The flag that holds back all actions.
    #[must_use]
    pub fn hold_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.hold)
    }

    /// Takes over what a user and the guard decided about the policy of this name before.
    pub fn inherit(&mut self, before: &Self) {
        self.paused = before.paused;
        self.guard = before.guard.clone();
        (self.watching, self.acting) = before.cpu();
    }

    fn apply_hold(&self) {
        let held = self.is_held();
        if let Some(worker) = &self.worker {
            worker.hold(held, self.mode);
        }
    }

    /// Changes the share of the budget.
    pub fn set_share(&mut self, share: CpuShare) {
        if share != self.share {
            self.share = share;
            if let Some(worker) = &self.worker {
                worker.set_share(share);
            }
        }
    }

    /// What it needs of the budget.
    #[must_use]
    pub fn need(&self) -> Need {
        Need {
            resident: self.resident().0,
            used: self.used.share(),
            wants_more: self.wants_more,
        }
    }

    /// Resident memory of all targets: by it the budget is divided.
    #[must_use]
    pub fn resident(&self) -> Bytes {
        self.targets.values().map(TargetState::resident).sum()
    }

    /// Whether it watches something.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.worker.is_some()
    }

    /// Name of the tracker, while it watches something.
    #[must_use]
    pub fn tracker(&self) -> Option<&'static str> {
        self.worker.as_ref().map(|worker| worker.tracker)
    }

    /// The idle age at which memory is paged out now; `None` if the policy pages nothing out.
    #[must_use]
    pub fn pageout_age(&self) -> Option<Nanos> {
        let mut schemes = self.config.schemes.iter().enumerate();
        let (nth, scheme) = schemes.find(|(_, scheme)| scheme.action == Action::Pageout)?;
        if scheme.auto_age.is_some() {
            return self.ages.get(&nth).copied().flatten();
        }
        match scheme.pattern.age.min {
            Age::Time(age) => Some(age),
            Age::Aggrs(_) => None,
        }
    }

    /// CPU time of watching and of acting since the agent started.
    #[must_use]
    pub const fn cpu(&self) -> (Nanos, Nanos) {
        (self.watching, self.acting)
    }

    /// Why it does not act now, and when that may end.
    fn suspended(&self) -> Option<(String, Option<Nanos>)> {
        if self.paused {
            return Some(("A user paused it.".to_owned(), None));
        }
        let (exceeded, until) = self.suspension()?;
        Some((format!("The guard suspended it: {exceeded}."), Some(until)))
    }

    /// The targets as others see them.
    pub fn published_targets(&mut self, now: Nanos) -> Vec<api::Target> {
        let suspended = self.suspended().map(|(why, _)| why);
        let (policy, mode) = (self.config.name.clone(), self.mode);
        let one = |(name, target): (&String, &mut TargetState)| {
            let refaults = target.refaults(now);
            api::Target {
                name: name.clone(),
                policy: policy.clone(),
                mode,
                suspended: suspended.clone(),
                ..target.published(refaults)
            }
        };
        self.targets.iter_mut().map(one).collect()
    }

    /// The policy as others see it. `to_unix` converts a time of the monotonic clock.
    pub fn published(&self, to_unix: impl Fn(Nanos) -> UnixMillis) -> api::Policy {
        let guard = self.suspension();
        api::Policy {
            name: self.config.name.clone(),
            mode: self.mode,
            configured_mode: self.config.mode,
            matches: self.config.rule.text(),
            does: self.config.schemes.iter().map(thermo_schemes::describe).collect(),
            targets: self.targets.len() as u64,
            processes: self.processes.len() as u64,
            paused: self.paused,
            suspended: guard.map(|(exceeded, _)| exceeded.to_string()),
            resumes_at_ms: guard.map(|(_, until)| to_unix(until)),
            guard: self.config.bounds.text(),
            error: self.error.clone(),
        }
    }
}
