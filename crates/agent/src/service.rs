//! The agent as the HTTP server sees it: reads what was published last, and hands orders to the agent's
//! thread.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use thermo_kernel::clock::{self, WallClock};

use crate::api::{
    Decisions, Explanation, Heatmap, Ledger, LedgerDays, Mode, Period, Policies, PolicyMatch, Refusal,
    SCHEMA, Series, Service, Status, Targets, UnixMillis,
};
use crate::audience::Audience;
use crate::config::Config;
use crate::decisions;
use crate::history::Past;
use crate::identity::{Asked, Identity};
use crate::kubernetes::pod_names::PodNames;
use crate::ledger::days::Days;
use crate::process_table::assign;

/// What the agent published last.
#[derive(Debug, Default)]
pub struct Published {
    /// The targets.
    pub targets: Targets,
    /// The policies.
    pub policies: Policies,
    /// The ledger.
    pub ledger: Ledger,
    /// The ledger of each day.
    pub ledger_days: Days,
    /// The agent itself.
    pub status: Status,
}

/// An order for the agent's thread, with the way back for its answer.
pub struct Order {
    /// What to do.
    pub command: Command,
    /// Where the answer goes.
    pub answer: Sender<Result<Answer, Refusal>>,
}

/// The answer to an order.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It was done.
    Done,
    /// Which policy has the process.
    Explained(Box<Explanation>),
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Pause a policy, or all, or let it go on.
    Pause(Option<String>, bool),
    /// Change the mode of a policy.
    SetMode(String, Mode),
    /// Read the configuration again.
    Reload,
    /// Say which policy has a process, as much as those who ask may see. The threads that answer others may
    /// not look at processes.
    Explain(u32, Audience),
}

/// What the agent's thread and the HTTP server share.
#[derive(Debug)]
pub struct Shared {
    published: RwLock<Published>,
    config: RwLock<Arc<Config>>,
    decisions: Mutex<decisions::Decisions>,
    /// How often something was published.
    publication: AtomicU64,
    subscribers: Mutex<Vec<SyncSender<()>>>,
    /// The flags that hold back the actions of each policy.
    holds: Mutex<Vec<(String, Arc<AtomicBool>)>>,
    orders: Mutex<Sender<Order>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind the locks is whole between two calls.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Shared state, and the orders that the agent's thread receives.
    #[must_use]
    pub fn new(config: Arc<Config>) -> (Arc<Self>, Receiver<Order>) {
        let (orders, inbox) = mpsc::channel();
        let shared = Self {
            published: RwLock::default(),
            config: RwLock::new(config),
            decisions: Mutex::default(),
            publication: AtomicU64::new(0),
            subscribers: Mutex::default(),
            holds: Mutex::default(),
            orders: Mutex::new(orders),
        };
        (Arc::new(shared), inbox)
    }

    /// Publishes figures, and wakes those who listen.
    pub fn publish(&self, published: Published) {
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = published;
        self.publication.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Sets the flags that hold back the actions of each policy.
    pub fn set_holds(&self, holds: Vec<(String, Arc<AtomicBool>)>) {
        *lock(&self.holds) = holds;
    }

    /// Sets the configuration by which processes are explained.
    pub fn set_config(&self, config: Arc<Config>) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// The decisions, to add to them.
    pub fn decisions(&self) -> MutexGuard<'_, decisions::Decisions> {
        lock(&self.decisions)
    }

    /// Wakes those who listen.
    pub fn wake(&self) {
        lock(&self.subscribers).retain(|subscriber| match subscriber.try_send(()) {
            Ok(()) | Err(TrySendError::Full(())) => true,
            Err(TrySendError::Disconnected(())) => false,
        });
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T>(&self, part: impl Fn(&Published) -> T) -> T {
        part(&self.published.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The past, if it is kept.
    fn past(&self) -> Result<Past, Refusal> {
        let config = self.config();
        let kept = config.history.map(|_| Past::new(&config.state_dir));
        kept.ok_or_else(|| {
            Refusal::Unavailable("this agent keeps no history: set [history] enabled = true".to_owned())
        })
    }

    fn order(&self, command: Command) -> Result<Answer, Refusal> {
        let (answer, answered) = mpsc::channel();
        let gone = || Refusal::Unavailable("the agent ends: ask again when it has started".to_owned());
        let sent = lock(&self.orders).send(Order { command, answer });
        sent.map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

impl Service for Shared {
    fn targets(&self) -> Targets {
        self.read(|published| published.targets.clone())
    }

    fn policies(&self) -> Policies {
        self.read(|published| published.policies.clone())
    }

    fn decisions(&self, target: Option<&str>, policy: Option<&str>, after: u64) -> Decisions {
        Decisions {
            schema: SCHEMA,
            decisions: lock(&self.decisions).after(after, target, policy),
        }
    }

    fn ledger(&self) -> Ledger {
        self.read(|published| published.ledger.clone())
    }

    fn ledger_days(&self, with_targets: bool) -> LedgerDays {
        let (since_ms, days) =
            self.read(|published| (published.ledger.since_ms, published.ledger_days.clone()));
        days.published(since_ms, with_targets)
    }

    fn status(&self) -> Status {
        self.read(|published| published.status.clone())
    }

    fn explain(&self, pid: u32, audience: Audience) -> Result<Explanation, Refusal> {
        match self.order(Command::Explain(pid, audience))? {
            Answer::Explained(explanation) => Ok(*explanation),
            Answer::Done => Err(Refusal::Unavailable(
                "the agent gave no answer: ask again".to_owned(),
            )),
        }
    }

    fn history(&self, period: &Period) -> Result<Series, Refusal> {
        self.past()?.series(period, now_ms())
    }

    fn heatmap(&self, period: &Period) -> Result<Heatmap, Refusal> {
        self.past()?.heatmap(period, now_ms())
    }

    fn advice(&self, period: &Period) -> Result<serde_json::Value, Refusal> {
        self.past()?.advice(period, now_ms())
    }

    fn pause(&self, policy: Option<&str>, paused: bool) -> Result<(), Refusal> {
        if paused {
            // At once: the agent's thread may wait for an action that takes long.
            let holds = lock(&self.holds);
            let wanted = holds
                .iter()
                .filter(|(name, _)| policy.is_none_or(|policy| policy == name));
            wanted.for_each(|(_, hold)| hold.store(true, Ordering::Relaxed));
        }
        self.order(Command::Pause(policy.map(str::to_owned), paused))
            .map(drop)
    }

    fn set_mode(&self, policy: &str, mode: Mode) -> Result<(), Refusal> {
        self.order(Command::SetMode(policy.to_owned(), mode)).map(drop)
    }

    fn reload(&self) -> Result<(), Refusal> {
        self.order(Command::Reload).map(drop)
    }

    fn publication(&self) -> u64 {
        self.publication.load(Ordering::Acquire)
    }

    fn subscribe(&self) -> Receiver<()> {
        let (sender, receiver) = mpsc::sync_channel(1);
        lock(&self.subscribers).push(sender);
        receiver
    }
}

fn now_ms() -> UnixMillis {
    WallClock::now().unix_ms(clock::monotonic())
}

/// Which policy process `pid` belongs to, and why.
///
/// # Errors
/// There is no such process, or it may not be read.
pub fn explain_process(
    root: &Path,
    config: &Config,
    pods: &PodNames,
    (pid, audience): (u32, Audience),
) -> Result<Explanation, Refusal> {
    let asked = Asked {
        user: true,
        ..config.asked.clone()
    };
    let mut identity = Identity::read(root, pid, &asked)
        .map_err(|error| Refusal::Invalid(error.to_string()))?
        .ok_or_else(|| {
            Refusal::NotFound(format!(
                "there is no process {pid}, or it is a thread of the kernel: `ps -e` lists processes"
            ))
        })?;
    identity.pod = pods.look_up(&identity.cgroups);
    Ok(explain(config, &identity, audience))
}

fn explain(config: &Config, identity: &Identity, audience: Audience) -> Explanation {
    let assignment = assign(config, identity);
    let policy = |index: usize| config.policies.get(index).map(|policy| policy.name.clone());
    let one = |policy: &crate::config::PolicyConfig| {
        let result = match policy.is_undecided(identity) {
            true => Err("names of its pod are not known yet, so no later policy has it".to_owned()),
            false => policy.rule.check_for(identity, audience),
        };
        PolicyMatch {
            policy: policy.name.clone(),
            matches: result.is_ok(),
            why: result.unwrap_or_else(|why_not| why_not),
        }
    };
    let pod = identity.pod_names();
    let path = identity.pod.as_ref().map(|pod| &pod.path);
    let facts = [
        ("command", Some(identity.command.clone())),
        (
            "exe",
            Some(identity.exe.clone()).filter(|exe| audience == Audience::Admin && !exe.is_empty()),
        ),
        ("uid", Some(identity.uid.to_string())),
        ("unit", identity.unit()),
        ("cgroup", Some(identity.cgroup().to_owned())),
        ("container", identity.container().map(str::to_owned)),
        ("namespace", pod.map(|pod| pod.namespace.clone())),
        ("pod", pod.map(|pod| pod.name.clone())),
        ("pod uid", path.map(|path| path.uid.clone())),
        (
            "pod class",
            path.and_then(|path| path.qos).map(|qos| qos.name().to_owned()),
        ),
        ("workload", pod.map(|pod| pod.workload().to_owned())),
        ("container name", identity.container_name().map(str::to_owned)),
    ];
    let known = |(name, value): (&str, Option<String>)| value.map(|value| (name.to_owned(), value));
    Explanation {
        schema: SCHEMA,
        pid: identity.pid,
        facts: facts.into_iter().filter_map(known).collect(),
        policies: config.policies.iter().map(one).collect(),
        policy: assignment.as_ref().and_then(|found| policy(found.policy)),
        target: assignment.map(|found| found.target),
        rule: "The first policy of the configuration that matches has the process.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn shared() -> (Arc<Shared>, Receiver<Order>) {
        let text = "[[policy]]\nname = \"none\"\nmatch = { command = \"no-such\" }\n\
                    [[policy]]\nname = \"tests\"\nmatch = { exe = \"/**\" }\ntarget_name = \"t-{uid}\"\n";
        let config = Config::parse(text, Path::new("/")).unwrap();
        Shared::new(Arc::new(config))
    }

    #[test]
    fn explanation_names_policy_and_reasons() {
        let (shared, _orders) = shared();
        let explain = |pid| {
            let asked = (pid, Audience::Admin);
            explain_process(Path::new("/"), &shared.config(), &PodNames::default(), asked)
        };
        let explanation = explain(std::process::id()).unwrap();
        assert_eq!(explanation.policy.as_deref(), Some("tests"));
        assert!(explanation.target.unwrap().starts_with("t-"));
        let [first, second] = &explanation.policies[..] else {
            panic!("two policies")
        };
        assert!(!first.matches && first.why.starts_with("command is "));
        assert!(second.matches && second.why == "exe is /**");
        assert!(matches!(explain(u32::MAX >> 8), Err(Refusal::NotFound(_))));
    }

    #[test]
    fn orders_are_answered_by_the_agents_thread() {
        let (shared, orders) = shared();
        let asks = std::thread::spawn(move || shared.pause(Some("x"), true));
        let order = orders.recv().unwrap();
        assert_eq!(order.command, Command::Pause(Some("x".to_owned()), true));
        order
            .answer
            .send(Err(Refusal::NotFound("no x".to_owned())))
            .unwrap();
        assert_eq!(asks.join().unwrap(), Err(Refusal::NotFound("no x".to_owned())));
    }

    #[test]
    fn order_to_an_ended_agent_is_refused() {
        let (shared, orders) = shared();
        drop(orders);
        assert!(matches!(shared.reload(), Err(Refusal::Unavailable(_))));
    }

    #[test]
    fn slow_receiver_has_one_wake_and_the_newest_figures() {
        let (shared, _orders) = shared();
        let (slow, gone) = (shared.subscribe(), shared.subscribe());
        drop(gone);
        for time_ms in 1..=1000 {
            let targets = Targets {
                time_ms,
                ..Targets::default()
            };
            shared.publish(Published {
                targets,
                ..Published::default()
            });
        }
        assert_eq!(slow.try_iter().count(), 1);
        assert_eq!((shared.publication(), shared.targets().time_ms), (1000, 1000));
        assert_eq!(lock(&shared.subscribers).len(), 1);
    }
}
