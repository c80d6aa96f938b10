//! The agent's thread: finds processes, divides the budget among policies, collects what they saw and did,
//! lets the guards judge, keeps the ledger, and publishes.

mod account;
mod budget;
mod export;
mod orders;
mod pod_names;
mod publish;
mod state;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use thermo_engine::budget::{Budget, CpuShare};
use thermo_kernel::clock::{self, WallClock};
use thermo_recording::history::{Clocks, RetentionClock};
use thermo_units::{Nanos, text};

use crate::api::{self, UnixMillis};
use crate::budget_division::RecentShare;
use crate::config::Config;
use crate::export::Exporter;
use crate::kubernetes::kubelet::Kubelet;
use crate::kubernetes::kubelet_thread::KubeletThread;
use crate::kubernetes::pod_names::PodNames;
use crate::ledger::Ledger;
use crate::policy::Policy;
use crate::pressure::SwapState;
use crate::process_table::ProcessTable;

use crate::service::{Command, Order, Shared};

/// How often processes are looked for.
const FIND_EVERY: Nanos = Nanos::millis(500);
/// New processes are found within this time, also if that costs more than its part of the budget: then
/// watching gets less.
const FIND_WITHIN: Nanos = Nanos::secs(1);
/// How often everything else is done.
const TICK: Nanos = Nanos::secs(1);
/// How often the ledger is written.
const SAVE_EVERY: Nanos = Nanos::secs(60);
/// Divisor: finding processes may use this part of the budget, and what it has saved.
const FIND_PART: u32 = 2;
/// Steps of the wall clock of at least this are warned of.
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
    kubelet: Option<KubeletThread>,
    /// Why the names of pods are not known.
    kubelet_error: Option<String>,
    policies: Vec<Policy>,
    /// Numbers of kdamonds are never used again: names of threads tell policies apart.
    next_number: u32,
    ledger: Ledger,
    /// Writes rows for the fleet, if the configuration says so.
    exporter: Option<Exporter>,
    export_status: api::Export,
    /// CPU time of the process that rows have counted.
    exported_cpu: Nanos,
    warnings: Vec<String>,
    started_ms: UnixMillis,
    cpu_begin: Nanos,
    /// CPU time of this thread, and how much of it the budget has counted.
    own: Nanos,
    own_counted: Nanos,
    own_share: RecentShare,
    /// CPU time of watching and acting of policies that are no longer in the configuration.
    ended_cpu: (Nanos, Nanos),
    wall_clock: WallClock,
    /// `None` while the history cannot be read.
    retention_clock: Option<RetentionClock>,
    find_budget: Budget,
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
    /// A key changed that is read only at the start.
    #[error("{key} changed, which only a restart can put into effect: restart the agent, or undo the change")]
    NeedsRestart {
        /// The key.
        key: &'static str,
    },
    /// The thread that asks the kubelet cannot start.
    #[error("cannot ask the kubelet for pods: {0}. Take [kubernetes] out of the configuration")]
    Kubelet(std::io::Error),
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
    let text = text::read_file(path).map_err(|source| AgentError::Unreadable {
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
        let wall_clock = WallClock::now();
        let started = clock::monotonic();
        let started_ms = wall_clock.unix_ms(started);
        let retention_begin = Clocks {
            monotonic: started,
            unix: Nanos::millis(started_ms),
        };
        let ledger = Ledger::load(&config.state_dir, started_ms).map_err(|source| AgentError::Ledger {
            dir: config.state_dir.clone(),
            source,
        })?;
        let kubelet = config
            .kubernetes
            .clone()
            .map(Kubelet::new)
            .map(KubeletThread::start);
        let kubelet = kubelet.transpose().map_err(AgentError::Kubelet)?;
        let mut agent = Self {
            table: ProcessTable::new(&root, PodNames::new(config.kubernetes.is_some())),
            kubelet,
            kubelet_error: None,
            root,
            options,
            shared,
            orders,
            policies: Vec::new(),
            next_number: 0,
            ledger,
            exporter: None,
            export_status: api::Export::default(),
            exported_cpu: clock::process_cpu(),
            warnings: Vec::new(),
            started_ms,
            cpu_begin: clock::process_cpu(),
            own: Nanos::ZERO,
            own_counted: Nanos::ZERO,
            own_share: RecentShare::default(),
            ended_cpu: (Nanos::ZERO, Nanos::ZERO),
            wall_clock,
            find_budget: Budget::new(config.budget, clock::monotonic()),
            next_find: Nanos::ZERO,
            next_tick: Nanos::ZERO,
            next_save: clock::monotonic().saturating_add(SAVE_EVERY),
            last_tick: clock::monotonic(),
            is_ready: false,
            // Before a segment of this run exists. The first pruning tries again, and reports an error.
            retention_clock: RetentionClock::begin(&config.state_dir, retention_begin).ok(),
            config,
        };
        agent.make_policies(true);
        agent.begin_export();
        Ok(agent)
    }

    /// What the HTTP server serves.
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
                let cpu = clock::thread_cpu();
                let answer = self.execute(&order.command);
                if !matches!(order.command, Command::Explain(..)) {
                    self.publish(clock::monotonic());
                }
                self.own += clock::thread_cpu().saturating_sub(cpu);
                // The thread may have ended.
                drop(order.answer.send(answer));
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }

    fn finish(mut self) {
        self.export(clock::monotonic(), &SwapState::read(&self.root));
        self.policies.iter_mut().for_each(Policy::stop);
        if let Err(error) = self.ledger.save(&self.config.state_dir) {
            thermo_kernel::message!("thermo: the ledger was not written: {error}");
        }
    }

    /// Looks for processes, and gives them to their policies.
    fn find(&mut self, now: Nanos) {
        let cpu = clock::thread_cpu();
        let mut changed = self.take_pods(now);
        match self.table.update(&self.config, now) {
            Ok(found) => changed |= found,
            Err(error) => self.warn(format!("processes are not found: {error}")),
        }
        self.ask_for_pods(now);
        if changed {
            for (nth, policy) in self.policies.iter_mut().enumerate() {
                policy.select(&self.root, self.table.of_policy(nth));
            }
        }
        for policy in &mut self.policies {
            policy.start_if_needed(now);
        }
        let cost = clock::thread_cpu().saturating_sub(cpu);
        self.find_budget
            .set_share(CpuShare(self.config.budget.0 / FIND_PART));
        self.find_budget.spend(now, cost);
        let earliest = now.saturating_add(FIND_EVERY);
        let latest = now.saturating_add(FIND_WITHIN);
        self.next_find = self.find_budget.free_at().clamp(earliest, latest);
    }

    /// Collects, judges, counts and publishes.
    fn tick(&mut self, now: Nanos) {
        self.watch_clock();
        let swap = SwapState::read(&self.root);
        let time = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        self.ledger.set_time(self.unix_ms(now));
        for nth in 0..self.policies.len() {
            let Some(policy) = self.policies.get_mut(nth) else {
                break;
            };
            let activity = policy.collect(now, &swap);
            let verdicts = policy.judge(now, &swap);
            self.record_activity(nth, activity, time);
            for (target, verdict) in verdicts {
                self.record_verdict(nth, target, verdict);
            }
        }
        self.divide_budget(time);
        self.export_if_due(now, &swap);
        let time_ms = self.unix_ms(now);
        self.shared.decisions().tell(now, time_ms);
        if now >= self.next_save {
            self.next_save = now.saturating_add(SAVE_EVERY);
            self.save();
            self.prune(now);
        }
        self.is_ready = true;
        self.publish(now);
    }

    /// Times are converted with the offset read at the start. A step updates it, and is warned of once.
    fn watch_clock(&mut self) {
        let wall_clock = WallClock::now();
        let step_ms = self.wall_clock.step_ns(wall_clock) / 1_000_000;
        if step_ms.abs() >= CLOCK_STEP_MS {
            let started = i64::try_from(self.started_ms)
                .unwrap_or(i64::MAX)
                .saturating_add(step_ms);
            self.started_ms = u64::try_from(started).unwrap_or(0);
            self.wall_clock = wall_clock;
            self.warn(format!(
                "the clock was stepped by {} s: times before that are told by the old clock",
                step_ms / 1000
            ));
        }
    }

    fn unix_ms(&self, time: Nanos) -> UnixMillis {
        self.wall_clock.unix_ms(time)
    }
}
