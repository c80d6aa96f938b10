//! The agent's thread: finds processes, divides the budget among policies, collects what they saw and did,
//! lets the guards judge, keeps the ledger, and publishes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use thermo_engine::budget::CpuShare;
use thermo_kernel::{clock, statm, uname};
use thermo_recording::history::{self, Clocks, Retention, SegmentWriter, WriteLimits};
use thermo_recording::model::{Metadata, Settings};
use thermo_units::Nanos;

use crate::api::{Decision, DecisionKind, Mode, Policies, Refusal, SCHEMA, Status, Targets, UnixMillis};
use crate::config::Config;
use crate::guard::Verdict;
use crate::ledger::Ledger;
use crate::policy::{Happened, MakeHistory, Policy};
use crate::pressure::SwapState;
use crate::process_table::ProcessTable;
use crate::service::Order;
use crate::service::{Answer, Published, Shared, What, explain_process};

/// How often processes are looked for.
const FIND_EVERY: Nanos = Nanos::millis(500);
/// How often everything else is done.
const TICK: Nanos = Nanos::secs(1);
/// How often the ledger is written.
const SAVE_EVERY: Nanos = Nanos::secs(60);
/// Finding processes may take one part in so many of the budget.
const FIND_PART: u64 = 4;
/// Warnings that are kept.
const MAX_WARNINGS: usize = 20;
/// A step of the wall clock of at least this is told.
const CLOCK_STEP_MS: i64 = 2000;

/// Where the configuration comes from.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file.
    pub config_file: PathBuf,
    /// In place of the directory that the file names.
    pub state_dir: Option<PathBuf>,
}

/// The agent.
pub struct Agent {
    root: PathBuf,
    options: Options,
    config: Arc<Config>,
    shared: Arc<Shared>,
    orders: Receiver<Order>,
    table: ProcessTable,
    policies: Vec<Policy>,
    /// Numbers of kdamonds are never used again: names of threads tell policies apart.
    next_number: u32,
    ledger: Ledger,
    warnings: Vec<String>,
    started_ms: UnixMillis,
    started: Nanos,
    cpu_begin: Nanos,
    /// CPU time of this thread.
    own: Nanos,
    clock_offset_ns: i64,
    next_find: Nanos,
    next_tick: Nanos,
    next_save: Nanos,
    last_tick: Nanos,
    is_ready: bool,
}

/// Why the agent cannot start, or read its configuration again: a sentence.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The configuration has a mistake.
    #[error("{0}")]
    Mistake(String),
    /// The ledger is there and cannot be read.
    #[error("cannot read the ledger in {dir}: {source}. Move it away to begin a new one")]
    Ledger {
        /// The state directory.
        dir: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Reads a configuration.
///
/// # Errors
/// It cannot be read, or has a mistake: with file, line and column.
pub fn read_config(options: &Options) -> Result<Config, AgentError> {
    let path = &options.config_file;
    let text = std::fs::read_to_string(path).map_err(|source| AgentError::Unreadable {
        path: path.clone(),
        source,
    })?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut config = Config::parse(&text, folder)
        .map_err(|error| AgentError::Mistake(error.in_file(&path.display().to_string())))?;
    if let Some(state_dir) = &options.state_dir {
        config.state_dir.clone_from(state_dir);
    }
    Ok(config)
}

impl Agent {
    /// An agent that has done nothing yet.
    ///
    /// # Errors
    /// The ledger of its state directory cannot be read.
    pub fn new(options: Options, config: Config) -> Result<Self, AgentError> {
        let root = PathBuf::from("/");
        let config = Arc::new(config);
        let (shared, orders) = Shared::new(Arc::clone(&config));
        let clock_offset_ns = clock::wall_clock_offset_ns();
        let started_ms = unix_ms(clock::monotonic(), clock_offset_ns);
        let ledger = Ledger::load(&config.state_dir, started_ms).map_err(|source| AgentError::Ledger {
            dir: config.state_dir.clone(),
            source,
        })?;
        let mut agent = Self {
            table: ProcessTable::new(&root),
            root,
            options,
            shared,
            orders,
            policies: Vec::new(),
            next_number: 0,
            ledger,
            warnings: Vec::new(),
            started_ms,
            started: clock::monotonic(),
            cpu_begin: clock::process_cpu(),
            own: Nanos::ZERO,
            clock_offset_ns,
            next_find: Nanos::ZERO,
            next_tick: Nanos::ZERO,
            next_save: clock::monotonic().saturating_add(SAVE_EVERY),
            last_tick: clock::monotonic(),
            is_ready: false,
            config,
        };
        agent.make_policies();
        Ok(agent)
    }

    /// What the doors serve.
    #[must_use]
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The description of applications whose life cycle the agent follows.
    #[must_use]
    pub fn lifecycle(&self) -> Option<&Path> {
        self.config.lifecycle.as_deref()
    }

    /// Runs until `should_stop` says so. It is asked several times a second, and may ask for the
    /// configuration to be read again.
    pub fn run(mut self, mut should_stop: impl FnMut(&mut Self) -> bool) {
        while !should_stop(&mut self) {
            let now = clock::monotonic();
            let cpu = clock::thread_cpu();
            if now >= self.next_find {
                self.find(now);
            }
            if now >= self.next_tick {
                self.tick(now);
                self.next_tick = now.saturating_add(TICK);
            }
            self.own += clock::thread_cpu().saturating_sub(cpu);
            self.wait();
        }
        self.finish();
    }

    /// Serves orders until the next work is due.
    fn wait(&mut self) {
        let now = clock::monotonic();
        let due = self.next_find.min(self.next_tick).saturating_sub(now);
        // Signals are looked at in between.
        let wait = Duration::from_nanos(due.0).min(Duration::from_millis(100));
        match self.orders.recv_timeout(wait) {
            Ok(order) => {
                let answer = self.obey(&order.what);
                self.publish(clock::monotonic());
                // The asker may have gone.
                drop(order.answer.send(answer));
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }

    fn finish(mut self) {
        self.policies.iter_mut().for_each(Policy::stop);
        if let Err(error) = self.ledger.save(&self.config.state_dir) {
            thermo_kernel::message!("thermo: the ledger was not written: {error}");
        }
    }

    /// Looks for processes, and gives them to their policies.
    fn find(&mut self, now: Nanos) {
        let cpu = clock::thread_cpu();
        match self.table.update(&self.config, now) {
            Ok(true) => {
                for (nth, policy) in self.policies.iter_mut().enumerate() {
                    policy.select(&self.root, self.table.of_policy(nth));
                }
            }
            Ok(false) => {}
            Err(error) => self.warn(format!("processes are not found: {error}")),
        }
        for policy in &mut self.policies {
            policy.start_if_needed(now);
        }
        let cost = clock::thread_cpu().saturating_sub(cpu);
        let pause = self.config.budget.time_for(cost) * FIND_PART;
        self.next_find = now.saturating_add(pause.max(FIND_EVERY));
    }

    /// Collects, judges, counts and publishes.
    fn tick(&mut self, now: Nanos) {
        self.watch_clock();
        let swap = SwapState::read(&self.root);
        let time = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        for nth in 0..self.policies.len() {
            let Some(policy) = self.policies.get_mut(nth) else {
                break;
            };
            let happened = policy.collect(now, &swap);
            let verdict = policy.judge(now, &swap);
            self.account(nth, happened, time);
            if let Some(verdict) = verdict {
                self.record_verdict(nth, verdict);
            }
        }
        self.divide_budget();
        let time_ms = self.unix_ms(now);
        let mut decisions = self.shared.decisions();
        decisions.tell(now, time_ms);
        let fresh = decisions.take_fresh();
        drop(decisions);
        for decision in fresh {
            self.shared.tell(&crate::api::Change::Decision(decision));
        }
        if now >= self.next_save {
            self.next_save = now.saturating_add(SAVE_EVERY);
            self.save();
            self.prune(now);
        }
        self.is_ready = true;
        self.publish(now);
    }

    /// Adds what happened to ledger and decisions.
    fn account(&mut self, nth: usize, happened: Happened, time: Nanos) {
        let Some(policy) = self.policies.get(nth) else {
            return;
        };
        let name = policy.config.name.clone();
        let time_ms = self.unix_ms(clock::monotonic());
        let mut decisions = self.shared.decisions();
        for ((scheme, target), applied) in &happened.applied {
            let Some(scheme) = policy.config.schemes.get(*scheme) else {
                continue;
            };
            let action = scheme.action.name();
            self.ledger.add_applied(&name, target, action, applied);
            let because = thermo_schemes::describe(scheme);
            decisions.add_applied((&name, target), (action, &because), applied);
        }
        for (target, returns) in &happened.returns {
            self.ledger.add_returns(&name, target, returns);
        }
        let kinds = [
            (DecisionKind::AgeChosen, &happened.ages),
            (DecisionKind::Warning, &happened.warnings),
        ];
        for (kind, texts) in kinds {
            for why in texts {
                let (policy, why) = (name.clone(), why.clone());
                decisions.add(
                    time_ms,
                    Decision {
                        policy,
                        kind,
                        why,
                        ..Decision::default()
                    },
                );
            }
        }
        drop(decisions);
        let resident = policy.resident().0.max(1);
        let (watching, acting) = happened.cpu;
        for (target, state) in &policy.targets {
            // CPU time is divided by resident memory, of which a pass reads every page.
            let part = |cpu: Nanos| {
                let part = u128::from(cpu.0) * u128::from(state.resident().0) / u128::from(resident);
                Nanos(u64::try_from(part).unwrap_or(cpu.0))
            };
            let cpu = (part(watching), part(acting));
            self.ledger.add_time(&name, target, time, state.net_saved, cpu);
        }
    }

    fn record_verdict(&mut self, nth: usize, verdict: Verdict) {
        let Some(policy) = self.policies.get(nth) else {
            return;
        };
        let (kind, why) = match verdict {
            Verdict::Suspend(exceeded) => (
                DecisionKind::Suspended,
                format!("{exceeded}. What is out stays out until it is used."),
            ),
            Verdict::Resume => (DecisionKind::Resumed, "The bounds hold again.".to_owned()),
        };
        self.decide(&policy.config.name.clone(), kind, why);
    }

    fn decide(&self, policy: &str, kind: DecisionKind, why: String) {
        let time_ms = self.unix_ms(clock::monotonic());
        let policy = policy.to_owned();
        self.shared.decisions().add(
            time_ms,
            Decision {
                policy,
                kind,
                why,
                ..Decision::default()
            },
        );
    }

    /// Divides what this thread leaves of the budget among the policies, by resident memory.
    fn divide_budget(&mut self) {
        let lifetime = clock::monotonic().saturating_sub(self.started);
        let own_share = self.own.0.saturating_mul(1_000_000) / lifetime.0.max(1);
        let budget = u64::from(self.config.budget.0);
        // Half at least is for watching.
        let rest = budget.saturating_sub(own_share.min(budget / 2));
        let running = self.policies.iter().filter(|policy| policy.is_running()).count() as u64;
        let resident: u64 = self.policies.iter().map(|policy| policy.resident().0).sum();
        for policy in self.policies.iter_mut().filter(|policy| policy.is_running()) {
            // A tenth is divided equally, so that a policy with new targets gets something.
            let equal = rest / 10 / running.max(1);
            let by_size = u128::from(rest - rest / 10) * u128::from(policy.resident().0);
            let by_size = by_size.checked_div(u128::from(resident)).unwrap_or(0);
            let share = equal + u64::try_from(by_size).unwrap_or(0);
            let share = match resident {
                0 => rest / running.max(1),
                _ => share,
            };
            policy.set_share(CpuShare(u32::try_from(share).unwrap_or(u32::MAX).max(10)));
        }
    }

    /// Times are told by the clock of the start; a step is told once.
    fn watch_clock(&mut self) {
        let offset = clock::wall_clock_offset_ns();
        let step_ms = (offset - self.clock_offset_ns) / 1_000_000;
        if step_ms.abs() >= CLOCK_STEP_MS {
            let started = i64::try_from(self.started_ms)
                .unwrap_or(i64::MAX)
                .saturating_add(step_ms);
            self.started_ms = u64::try_from(started).unwrap_or(0);
            self.clock_offset_ns = offset;
            self.warn(format!(
                "the clock was stepped by {} s: times before that are told by the old clock",
                step_ms / 1000
            ));
        }
    }

    fn save(&mut self) {
        if let Err(error) = self.ledger.save(&self.config.state_dir) {
            let dir = self.config.state_dir.display();
            self.warn(format!("the ledger is not written to {dir}: {error}"));
        }
    }

    /// Removes what is too old or too much of the history.
    fn prune(&mut self, now: Nanos) {
        let Some(history) = self.config.history else {
            return;
        };
        let retention = Retention {
            max_age: history.keep,
            max_bytes: history.max_size,
        };
        let unix = Nanos::millis(self.unix_ms(now));
        if let Err(error) = history::prune(&self.config.state_dir, &retention, unix) {
            self.warn(format!("the history is not pruned: {error}"));
        }
    }

    /// Keeps a warning, and prints it the first time.
    fn warn(&mut self, text: String) {
        if self.warnings.contains(&text) {
            return;
        }
        thermo_kernel::message!("thermo: {}", thermo_units::printable(&text));
        if self.warnings.len() >= MAX_WARNINGS {
            self.warnings.remove(0);
        }
        self.warnings.push(text);
    }

    fn obey(&mut self, what: &What) -> Result<Answer, Refusal> {
        match what {
            What::Pause(policy, paused) => self.pause(policy.as_deref(), *paused)?,
            What::SetMode(policy, mode) => self.set_mode(policy, *mode)?,
            What::Reload => self
                .reload()
                .map_err(|error| Refusal::Invalid(error.to_string()))?,
            What::Explain(pid) => {
                let explanation = explain_process(&self.root, &self.config, *pid)?;
                return Ok(Answer::Explained(Box::new(explanation)));
            }
        }
        Ok(Answer::Done)
    }

    fn pause(&mut self, name: Option<&str>, paused: bool) -> Result<(), Refusal> {
        if let Some(name) = name {
            self.policy(name)?;
        }
        let mut changed = Vec::new();
        for policy in &mut self.policies {
            if name.is_none_or(|name| policy.config.name == name) {
                policy.pause(paused);
                changed.push(policy.config.name.clone());
            }
        }
        let (kind, why) = match paused {
            true => (DecisionKind::Paused, "A user paused it."),
            false => (DecisionKind::Resumed, "A user let it go on."),
        };
        for policy in changed {
            self.decide(&policy, kind, why.to_owned());
        }
        Ok(())
    }

    fn set_mode(&mut self, name: &str, mode: Mode) -> Result<(), Refusal> {
        let policy = self.policy(name)?;
        let before = policy.mode;
        policy.set_mode(mode).map_err(Refusal::Invalid)?;
        let why = format!("A user changed it from {} to {}.", before.name(), mode.name());
        self.decide(name, DecisionKind::ModeChanged, why);
        Ok(())
    }

    fn policy(&mut self, name: &str) -> Result<&mut Policy, Refusal> {
        let names: Vec<String> = self
            .policies
            .iter()
            .map(|policy| policy.config.name.clone())
            .collect();
        let mut policies = self.policies.iter_mut();
        let found = policies.find(|policy| policy.config.name == name);
        found.ok_or_else(|| {
            Refusal::NotFound(format!(
                "there is no policy {name:?}: there are {}",
                names.join(", ")
            ))
        })
    }

    /// Reads the configuration again. Policies that have not changed go on; the others begin anew.
    ///
    /// # Errors
    /// It cannot be read, or has a mistake; then nothing changes.
    pub fn reload(&mut self) -> Result<(), AgentError> {
        let config = read_config(&self.options)?;
        self.config = Arc::new(config);
        self.shared.set_config(Arc::clone(&self.config));
        self.make_policies();
        self.table.clear();
        self.next_find = Nanos::ZERO;
        self.decide(
            "",
            DecisionKind::Reloaded,
            "The configuration was read again.".to_owned(),
        );
        Ok(())
    }

    /// Makes the policies of the configuration, and keeps the running ones that are in it unchanged.
    fn make_policies(&mut self) {
        let mut before: BTreeMap<String, Policy> = std::mem::take(&mut self.policies)
            .into_iter()
            .map(|policy| (policy.config.name.clone(), policy))
            .collect();
        for config in &self.config.policies {
            let kept = before.remove(&config.name);
            let policy = match kept {
                Some(mut policy) if policy.config.is_same(config) => {
                    policy.config = config.clone();
                    // A mode that a user had set ends here. The machine could do what is configured before.
                    drop(policy.set_mode(config.mode));
                    policy
                }
                kept => {
                    kept.into_iter().for_each(|mut policy| policy.stop());
                    let number = self.next_number;
                    self.next_number += 1;
                    Policy::new(number, config.clone(), history_maker(&self.config))
                }
            };
            self.policies.push(policy);
        }
        before.into_values().for_each(|mut policy| policy.stop());
    }

    fn publish(&mut self, now: Nanos) {
        let time_ms = self.unix_ms(now);
        let targets = self
            .policies
            .iter_mut()
            .flat_map(|policy| policy.published_targets(now))
            .collect();
        let offset = self.clock_offset_ns;
        let policies = self
            .policies
            .iter()
            .map(|policy| policy.published(|time| unix_ms(time, offset)))
            .collect();
        self.shared.publish(Published {
            targets: Targets {
                schema: SCHEMA,
                time_ms,
                targets,
            },
            policies: Policies {
                schema: SCHEMA,
                policies,
            },
            ledger: self.ledger.published(),
            status: self.status(time_ms),
        });
    }

    fn status(&self, time_ms: UnixMillis) -> Status {
        let sum = |part: fn((Nanos, Nanos)) -> Nanos| -> Nanos {
            self.policies.iter().map(|policy| part(policy.cpu())).sum()
        };
        let errors = self.policies.iter().filter_map(|policy| {
            let error = policy.error.as_ref()?;
            Some(format!("policy {} does not run: {error}", policy.config.name))
        });
        let full = self.ledger.is_full().then(|| {
            "the ledger has as many targets as it keeps: further targets share a row. Give policies a target_name"
                .to_owned()
        });
        Status {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: uname::host_name(),
            started_ms: self.started_ms,
            time_ms,
            budget_cpu_share: f64::from(self.config.budget.0) / 1e6,
            watching_cpu_s: (sum(|cpu| cpu.0) + self.own).as_secs_f64(),
            acting_cpu_s: sum(|cpu| cpu.1).as_secs_f64(),
            cpu_s: clock::process_cpu().saturating_sub(self.cpu_begin).as_secs_f64(),
            resident_bytes: statm::read(&self.root, std::process::id()).map_or(0, |statm| statm.resident.0),
            tracker: self
                .policies
                .iter()
                .find_map(Policy::tracker)
                .unwrap_or_default()
                .to_owned(),
            ready: self.is_ready,
            warnings: self.warnings.iter().cloned().chain(errors).chain(full).collect(),
        }
    }

    fn unix_ms(&self, time: Nanos) -> UnixMillis {
        unix_ms(time, self.clock_offset_ns)
    }
}

/// Makes writers of the history as the configuration says.
fn history_maker(config: &Arc<Config>) -> MakeHistory {
    let config = Arc::clone(config);
    Box::new(move |policy, tracker| {
        let history = config.history?;
        let limits = WriteLimits {
            every: history.every,
            ..WriteLimits::default()
        };
        let monotonic = clock::monotonic();
        let unix = Nanos(monotonic.0.saturating_add_signed(clock::wall_clock_offset_ns()));
        let (budget, targets) = (config.budget, policy.rule.text());
        let schemes: Vec<String> = policy.schemes.iter().map(thermo_schemes::describe).collect();
        let metadata = move || metadata(tracker, budget, &targets, &schemes);
        let now = Clocks { monotonic, unix };
        // The configuration allows only names that can be those of folders.
        SegmentWriter::new(&config.state_dir, &policy.name, limits, now, metadata).ok()
    })
}

/// Metadata of a segment. Times and schema are filled in by the writer.
fn metadata(tracker: &str, budget: CpuShare, targets: &str, schemes: &[String]) -> Metadata {
    let uname = uname::read(Path::new("/"));
    Metadata {
        writer: concat!("thermo ", env!("CARGO_PKG_VERSION")).to_owned(),
        kernel: uname.release,
        arch: uname.machine,
        tracker: tracker.to_owned(),
        targets: targets.to_owned(),
        settings: Settings {
            cpu_budget_percent: Some(budget.percent()),
            ..Settings::default()
        },
        schemes: schemes.to_vec(),
        ..Metadata::default()
    }
}

fn unix_ms(time: Nanos, offset_ns: i64) -> UnixMillis {
    let ns = i64::try_from(time.0)
        .unwrap_or(i64::MAX)
        .saturating_add(offset_ns);
    u64::try_from(ns / 1_000_000).unwrap_or(0)
}
