//! A policy while the agent runs: its kdamond, its targets, its guard.

mod collect;
pub mod sink;
mod target;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thermo_actions::HeldProcesses;
use thermo_engine::Action;
use thermo_engine::budget::CpuShare;
use thermo_engine::ops::Applied;
use thermo_engine::scheme::Age;
use thermo_recording::history::SegmentWriter;
use thermo_runtime::target_records::Survey;
use thermo_units::{Bytes, Nanos};

pub use self::target::TargetState;
use self::worker::Worker;
use crate::api::{self, Mode, UnixMillis};
use crate::budget_division::{Need, RecentShare};
use crate::config::PolicyConfig;
use crate::guard::{Exceeded, Guard, Measured, TargetGuards, Verdict};
use crate::pressure::{StallMeter, SwapState};
use crate::process_table::PolicyProcess;

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
    target_guards: TargetGuards,
    /// Set while nothing may be done. Others set it, too, to stop an action at once.
    hold: Arc<AtomicBool>,
    /// The processes of targets that are suspended.
    held: HeldProcesses,
    worker: Option<Worker>,
    processes: Vec<PolicyProcess>,
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
    survey: Survey,
    /// Bytes in swap of each process, by the number of its target.
    swap: BTreeMap<u32, Bytes>,
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
            target_guards: TargetGuards::default(),
            hold: Arc::default(),
            held: HeldProcesses::default(),
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
            survey: Survey::default(),
            swap: BTreeMap::new(),
            ages: BTreeMap::new(),
            make_history,
        }
    }

    /// Watches these processes from now on.
    pub fn select(&mut self, root: &Path, processes: Vec<PolicyProcess>) {
        if processes == self.processes {
            return;
        }
        self.processes = processes;
        self.stall.set_processes(root, &self.processes);
        self.hold_processes();
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
        self.apply_hold();
        match Worker::start(
            self.number,
            &self.config,
            self.mode,
            self.share,
            &self.make_history,
            (Arc::clone(&self.hold), self.held.clone()),
        ) {
            Ok(worker) => {
                self.last_collect = now;
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

    /// Lets the guards judge the policy and its targets. Returns what changed; without a name: the policy.
    pub fn judge(&mut self, now: Nanos, swap: &SwapState) -> Vec<(Option<String>, Verdict)> {
        if self.mode != Mode::Act || self.worker.is_none() {
            return Vec::new();
        }
        self.stall.read(now);
        let bounds = self.config.bounds;
        let of_machine = Measured {
            stall: self.stall.of_machine(),
            free_swap: swap.free,
            ..Measured::default()
        };
        let verdict = self.guard.judge(&bounds, &of_machine, now);
        let of_target = |(name, target): (&String, &mut TargetState)| {
            let measured = Measured {
                refaults: target.refaults(now),
                working_set: target.working_set(),
                stall: self.stall.of_target(name),
                free_swap: None,
            };
            (name.clone(), measured)
        };
        let measured = self.targets.iter_mut().map(of_target).collect();
        let of_targets = self.target_guards.judge(&bounds, &measured, now).into_iter();
        let mut verdicts: Vec<(Option<String>, Verdict)> =
            verdict.map(|verdict| (None, verdict)).into_iter().collect();
        verdicts.extend(of_targets.map(|(name, verdict)| (Some(name), verdict)));
        if !verdicts.is_empty() {
            self.apply_hold();
        }
        verdicts
    }

    /// Pauses the policy, or lets it go on: then also what the guards had suspended.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        if !paused {
            self.guard.release();
            self.target_guards.release();
            // The guards would judge by what they have suspended it for.
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

    /// The suspension of a target by its guard.
    fn target_suspension(&self, name: &str) -> Option<(Exceeded, Nanos)> {
        self.target_guards
            .suspended(name)
            .filter(|_| self.mode == Mode::Act)
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
        self.target_guards = before.target_guards.clone();
        (self.watching, self.acting) = before.cpu();
    }

    /// Holds back all actions, or those on suspended targets, or lets them go on. It takes effect within
    /// 0.1 s, also in the midst of an action. Idle ages go on.
    fn apply_hold(&self) {
        self.hold.store(self.is_held(), Ordering::Relaxed);
        self.hold_processes();
    }

    /// Holds the processes of suspended targets. The guards judge only policies that act.
    fn hold_processes(&self) {
        let suspended = self.target_guards.all_suspended();
        let is_held =
            |process: &&PolicyProcess| self.mode == Mode::Act && suspended.contains(process.target.as_str());
        let held = self.processes.iter().filter(is_held);
        self.held.set(held.map(|process| process.pid).collect());
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
        Some((suspended_by_guard(&exceeded), Some(until)))
    }

    /// The targets as others see them. `to_unix` converts a time of the monotonic clock.
    pub fn published_targets(
        &mut self,
        now: Nanos,
        to_unix: impl Fn(Nanos) -> UnixMillis,
    ) -> Vec<api::Target> {
        let of_policy = self.suspended();
        let (policy, mode) = (self.config.name.clone(), self.mode);
        let refaults = self.targets.values_mut().map(|target| target.refaults(now));
        let refaults: Vec<Bytes> = refaults.collect();
        let one = |((name, target), refaults): ((&String, &TargetState), Bytes)| {
            let by_its_guard = || {
                let (exceeded, until) = self.target_suspension(name)?;
                Some((suspended_by_guard(&exceeded), Some(until)))
            };
            let (suspended, until) = of_policy.clone().or_else(by_its_guard).unzip();
            api::Target {
                name: name.clone(),
                policy: policy.clone(),
                mode,
                suspended,
                resumes_at_ms: until.flatten().map(&to_unix),
                ..target.published(refaults)
            }
        };
        self.targets.iter().zip(refaults).map(one).collect()
    }

    /// The policy as others see it. `to_unix` converts a time of the monotonic clock.
    pub fn published(&self, to_unix: impl Fn(Nanos) -> UnixMillis) -> api::Policy {
        let guard = self.suspension();
        let is_suspended = |name: &&String| self.target_suspension(name).is_some();
        api::Policy {
            name: self.config.name.clone(),
            mode: self.mode,
            configured_mode: self.config.mode,
            matches: self.config.rule.text(),
            does: self.config.schemes.iter().map(thermo_schemes::describe).collect(),
            targets: self.targets.len() as u64,
            suspended_targets: self.targets.keys().filter(is_suspended).count() as u64,
            processes: self.processes.len() as u64,
            paused: self.paused,
            suspended: guard.map(|(exceeded, _)| exceeded.to_string()),
            resumes_at_ms: guard.map(|(_, until)| to_unix(until)),
            guard: self.config.bounds.text(),
            error: self.error.clone(),
        }
    }
}

fn suspended_by_guard(exceeded: &Exceeded) -> String {
    format!("The guard suspended it: {exceeded}.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use thermo_actions::{Actor, PageoutLimits};
    use thermo_units::Permille;

    use super::*;
    use crate::config::Config;

    #[test]
    fn suspended_target_is_held_while_the_policy_acts() {
        let text = "[[policy]]\nname = \"a\"\nmatch = { command = \"*\" }\nmode = \"act\"\n\
                    preset = \"reclaim\"\nmin_age = \"1m\"\n";
        let config = Config::parse(text, Path::new("/")).unwrap();
        let mut policy = Policy::new(
            0,
            config.policies[0].clone(),
            CpuShare(10_000),
            Box::new(|_, _| None),
        );
        let process = |pid, target: &str| PolicyProcess {
            pid,
            starttime: 1,
            target: target.to_owned(),
            memory_groups: Vec::new(),
        };
        let root = Path::new("/nonexistent");
        policy.select(root, vec![process(7, "mallory"), process(8, "alice")]);
        let actor = Actor::new(PageoutLimits::default(), true).with_held_processes(policy.held.clone());
        let stalled = Measured {
            stall: Some(Permille(900)),
            ..Measured::default()
        };
        let measured = BTreeMap::from([("mallory".to_owned(), stalled)]);
        policy
            .target_guards
            .judge(&policy.config.bounds, &measured, Nanos::ZERO);
        policy.apply_hold();
        assert!(actor.is_held(7) && !actor.is_held(8));
        policy.select(root, vec![process(9, "mallory"), process(8, "alice")]);
        assert!(actor.is_held(9), "also a process that begins now");
        policy.set_mode(Mode::DryRun).unwrap();
        assert!(!actor.is_held(9), "guards judge only policies that act");
        policy.set_mode(Mode::Act).unwrap();
        assert!(actor.is_held(9));
        policy.pause(true);
        assert!(policy.hold_flag().load(Ordering::Relaxed));
        policy.pause(false);
        assert!(!actor.is_held(9), "a user has let it go on");
    }
}
