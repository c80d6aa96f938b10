//! What changes in the made-up agent: orders of users, decisions, and for how long each policy has acted.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, TrySendError};

use thermo_agent::api::{
    Decision, DecisionKind, LedgerRow, Mode, NamedBytes, Policies, Policy, SCHEMA, Target, Targets,
    UnixMillis,
};

use crate::profile::{PROFILES, Profile, sum_of_kinds};

/// Most decisions kept.
const MAX_DECISIONS: usize = 1000;
/// The guard suspends policy `databases` in this part of every 300 seconds.
const SUSPENDED_AT: std::ops::Range<u64> = 200..230;

#[derive(Debug)]
pub(crate) struct PolicyState {
    pub(crate) name: &'static str,
    matches: &'static str,
    does: &'static str,
    configured_mode: Mode,
    pub(crate) mode: Mode,
    pub(crate) paused: bool,
    acting_s: u64,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) started_ms: UnixMillis,
    /// Seconds since the start.
    pub(crate) seconds: u64,
    pub(crate) policies: Vec<PolicyState>,
    pub(crate) decisions: VecDeque<Decision>,
    next_decision: u64,
    pub(crate) publication: u64,
    /// How many times all targets are there.
    pub(crate) copies: usize,
    pub(crate) subscribers: Vec<SyncSender<()>>,
}

impl State {
    pub(crate) fn new(started_ms: UnixMillis) -> Self {
        let policy = |name, matches, does, mode| PolicyState {
            name,
            matches,
            does,
            configured_mode: mode,
            mode,
            paused: false,
            acting_s: 0,
        };
        Self {
            started_ms,
            seconds: 0,
            policies: vec![
                policy(
                    "databases",
                    "unit is mariadb.service or redis-server.service",
                    "page out memory that was idle for 5 min",
                    Mode::Act,
                ),
                policy(
                    "web",
                    "control group matches /system.slice/{nginx,php-fpm}.service",
                    "page out memory that was idle for 10 min",
                    Mode::DryRun,
                ),
                policy("batch", "control group matches /batch.slice/*", "", Mode::Observe),
            ],
            decisions: VecDeque::new(),
            next_decision: 1,
            publication: 0,
            copies: 1,
            subscribers: Vec::new(),
        }
    }

    pub(crate) fn now_ms(&self) -> UnixMillis {
        self.started_ms + self.seconds * 1000
    }

    /// One second passes.
    pub(crate) fn tick(&mut self) {
        self.seconds += 1;
        for index in 0..self.policies.len() {
            if self.suspended(&self.policies[index]).is_none() {
                self.policies[index].acting_s += 1;
            }
        }
        self.announce_guard();
        if self.seconds.is_multiple_of(5) {
            self.decide();
        }
        self.publish();
    }

    fn announce_guard(&mut self) {
        let kind = match self.seconds % 300 {
            second if second == SUSPENDED_AT.start => DecisionKind::Suspended,
            second if second == SUSPENDED_AT.end => DecisionKind::Resumed,
            _ => return,
        };
        let why = match kind {
            DecisionKind::Suspended => {
                "refaults of mariadb.service are 12.4 MiB/min, above the bound of 8 MiB/min"
            }
            _ => "refaults were below the bound for 30 s",
        };
        self.add_decision("databases", None, kind, 0, why);
        self.publish();
    }

    /// A decision about one target after the other.
    fn decide(&mut self) {
        let profile = &PROFILES[(self.seconds / 5) as usize % PROFILES.len()];
        let Some(policy) = self.policy(profile.policy) else {
            return;
        };
        let (mode, held) = (policy.mode, policy.paused || self.suspended(policy).is_some());
        let bytes = profile.paged_out(self.acting_s(profile) + 5) - profile.paged_out(self.acting_s(profile));
        let (kind, why) = match mode {
            Mode::Observe => return,
            _ if held => (DecisionKind::Skipped, "the policy is paused or suspended"),
            Mode::DryRun => (DecisionKind::WouldAct, "idle for 10 min"),
            Mode::Act => (DecisionKind::Acted, "idle for 5 min"),
        };
        self.add_decision(profile.policy, Some(profile.name), kind, bytes, why);
    }

    pub(crate) fn add_decision(
        &mut self,
        policy: &str,
        target: Option<&str>,
        kind: DecisionKind,
        bytes: u64,
        why: &str,
    ) {
        let about_action = matches!(
            kind,
            DecisionKind::Acted | DecisionKind::WouldAct | DecisionKind::Skipped
        );
        let decision = Decision {
            number: self.next_decision,
            time_ms: self.now_ms(),
            policy: policy.to_owned(),
            target: target.map(str::to_owned),
            kind,
            action: if about_action { "pageout" } else { "" }.to_owned(),
            bytes,
            why: why.to_owned(),
        };
        self.next_decision += 1;
        self.decisions.push_back(decision);
        if self.decisions.len() > MAX_DECISIONS {
            self.decisions.pop_front();
        }
        self.wake();
    }

    /// Figures have changed.
    pub(crate) fn publish(&mut self) {
        self.publication += 1;
        self.wake();
    }

    /// Wakes all who listen, and forgets those that left.
    fn wake(&mut self) {
        self.subscribers
            .retain(|subscriber| !matches!(subscriber.try_send(()), Err(TrySendError::Disconnected(()))));
    }

    fn policy(&self, name: &str) -> Option<&PolicyState> {
        self.policies.iter().find(|policy| policy.name == name)
    }

    fn suspended(&self, policy: &PolicyState) -> Option<String> {
        let suspended = policy.name == "databases" && SUSPENDED_AT.contains(&(self.seconds % 300));
        let guard = "refaults are 12.4 MiB/min, above the bound of 8 MiB/min".to_owned();
        match policy.mode {
            Mode::Observe => None,
            _ if policy.paused => Some("a user paused it".to_owned()),
            Mode::DryRun | Mode::Act => suspended.then_some(guard),
        }
    }

    /// For how long the policy of a target has acted.
    pub(crate) fn acting_s(&self, profile: &Profile) -> u64 {
        self.policy(profile.policy)
            .filter(|policy| policy.mode == Mode::Act)
            .map_or(0, |policy| policy.acting_s)
    }

    pub(crate) fn targets(&self) -> Targets {
        Targets {
            schema: SCHEMA,
            time_ms: self.now_ms(),
            targets: (0..self.copies).flat_map(|copy| self.copy(copy)).collect(),
        }
    }

    /// The targets; further copies have names of their own.
    fn copy(&self, nth: usize) -> impl Iterator<Item = Target> {
        PROFILES.iter().map(move |profile| {
            let mut target = self.target(profile);
            if nth > 0 {
                target.name = format!("{}-{nth}", profile.name);
            }
            target
        })
    }

    fn target(&self, profile: &Profile) -> Target {
        let swap_bytes = profile.paged_out(self.acting_s(profile));
        let kinds = profile.kinds(self.now_ms(), swap_bytes);
        let ages = sum_of_kinds(&kinds);
        let known: u64 = ages.iter().map(|age| age.bytes).sum();
        let unknown_bytes = profile.size_mib << 12;
        let policy = self.policy(profile.policy);
        Target {
            name: profile.name.to_owned(),
            policy: profile.policy.to_owned(),
            mode: policy.map(|policy| policy.mode).unwrap_or_default(),
            pids: profile.pids.to_vec(),
            resident_bytes: known + unknown_bytes,
            swap_bytes,
            unknown_bytes,
            working_set_bytes: ages
                .iter()
                .filter(|age| age.min_s < 60)
                .map(|age| age.bytes)
                .sum(),
            ages,
            kinds,
            reaccess: profile.reaccess(self.seconds),
            net_saved_bytes: (swap_bytes - swap_bytes / 3) as i64,
            refault_bytes_per_min: swap_bytes / 1000,
            pass_s: (self.seconds > 2).then_some(1.6),
            suspended: policy.and_then(|policy| self.suspended(policy)),
            resumes_at_ms: None,
        }
    }

    pub(crate) fn policies(&self) -> Policies {
        Policies {
            schema: SCHEMA,
            policies: self.policies.iter().map(|policy| self.describe(policy)).collect(),
        }
    }

    fn describe(&self, policy: &PolicyState) -> Policy {
        let own = || PROFILES.iter().filter(|profile| profile.policy == policy.name);
        let by_guard = self.suspended(policy).filter(|_| !policy.paused);
        let guard = [
            "refaults at most 8 MiB/min",
            "memory PSI at most 5 %",
            "free swap at least 10 %",
        ];
        Policy {
            name: policy.name.to_owned(),
            mode: policy.mode,
            configured_mode: policy.configured_mode,
            matches: policy.matches.to_owned(),
            does: Some(policy.does.to_owned())
                .filter(|does| !does.is_empty())
                .into_iter()
                .collect(),
            targets: own().count() as u64,
            suspended_targets: 0,
            processes: own().map(|profile| profile.pids.len() as u64).sum(),
            paused: policy.paused,
            resumes_at_ms: by_guard.is_some().then(|| self.now_ms() + 30_000),
            suspended: by_guard,
            guard: guard.map(str::to_owned).to_vec(),
            error: None,
        }
    }

    pub(crate) fn ledger_rows(&self) -> Vec<LedgerRow> {
        let row = |profile: &Profile| {
            let mut row = self.ledger_row(profile);
            super::days::add_before(&mut row, profile);
            row
        };
        PROFILES.iter().map(row).collect()
    }

    /// The sums since the start.
    pub(crate) fn ledger_row(&self, profile: &Profile) -> LedgerRow {
        let acting_s = self.acting_s(profile);
        let bytes = profile.paged_out(acting_s) + (acting_s << 16);
        let named = |name: &str, bytes| NamedBytes {
            name: name.to_owned(),
            bytes,
        };
        let some = |rows: Vec<NamedBytes>| rows.into_iter().filter(|row| row.bytes > 0).collect();
        let would_act = self
            .policy(profile.policy)
            .filter(|policy| policy.mode == Mode::DryRun)
            .map_or(0, |policy| profile.paged_out(policy.acting_s));
        LedgerRow {
            policy: profile.policy.to_owned(),
            target: profile.name.to_owned(),
            acted_bytes: some(vec![named("pageout", bytes)]),
            skipped_bytes: some(vec![named("young", bytes / 7), named("shared", bytes / 20)]),
            would_act_bytes: some(vec![named("pageout", would_act)]),
            moved_back_bytes: 0,
            back_1min_bytes: bytes / 100,
            back_10min_bytes: bytes / 40,
            back_1h_bytes: bytes / 16,
            net_saved_gib_hours: profile.paged_out(acting_s) as f64 / f64::from(1 << 30) * acting_s as f64
                / 3600.0,
            watching_cpu_s: self.seconds as f64 * profile.size_mib as f64 * 1e-6,
            acting_cpu_s: acting_s as f64 * 0.0004,
            watched_s: self.seconds as f64,
        }
    }
}
