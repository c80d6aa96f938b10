//! What can be seen of applications without being told: whether they are frozen, their `oom_score_adj`, and whether
//! they are idle.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thermo_kernel::cgroup::Freezers;
use thermo_kernel::{clock, proc, stat};
use thermo_units::{Nanos, Permille};

use super::config::AppConfig;
use super::state::StateEvent;
use super::table::Table;

/// Using less than a hundredth of a CPU is resting.
const RESTING: u64 = 100;
/// How long a look at accesses takes.
const LOOK: Nanos = Nanos::secs(1);

/// Looks at accesses: the command line brings it, as it knows how this machine can be looked at.
pub trait Accesses: Send {
    /// The share of the memory of `pids` that is touched within `time`, which it takes to tell; `None` when it cannot
    /// be told.
    fn touched(&mut self, pids: &[u32], time: Nanos) -> Option<Permille>;
}

/// What is seen of an application at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Observation {
    pids: Vec<u32>,
    /// Of the process the kernel would spare longest.
    oom_score_adj: Option<i16>,
    frozen: Option<bool>,
    /// CPU time of all of them.
    cpu: Nanos,
}

/// What was seen of an application so far.
#[derive(Debug, Default)]
struct Seen {
    last: Option<(Nanos, Observation)>,
    active_at: Nanos,
    idle: bool,
}

impl Seen {
    /// Takes in a sight. Returns the words that follow, and whether it may be idle: that is for accesses to tell.
    fn see(&mut self, sight: Observation, now: Nanos, idle_after: Option<Nanos>) -> (Vec<StateEvent>, bool) {
        let mut words = Vec::new();
        let Some((then, before)) = self.last.replace((now, sight.clone())) else {
            self.active_at = now;
            // The score that was there before says nothing of what is used now; being frozen does.
            words.extend(sight.frozen.filter(|frozen| *frozen).map(StateEvent::Frozen));
            return (words, false);
        };
        if let Some(adj) = sight
            .oom_score_adj
            .filter(|adj| before.oom_score_adj.is_some_and(|was| was != *adj))
        {
            words.push(StateEvent::OomScoreAdj(adj));
        }
        if sight.frozen.unwrap_or(false) != before.frozen.unwrap_or(false) {
            words.push(StateEvent::Frozen(sight.frozen.unwrap_or(false)));
        }
        let ran = sight.cpu.saturating_sub(before.cpu);
        let resting = ran.0 * RESTING <= now.saturating_sub(then).0;
        if !resting || sight.pids != before.pids {
            self.active_at = now;
        }
        if self.idle && self.active_at == now {
            self.idle = false;
            words.push(StateEvent::Idle(false));
        }
        let rested = now.saturating_sub(self.active_at);
        let may_be_idle =
            !self.idle && !sight.pids.is_empty() && idle_after.is_some_and(|time| rested >= time);
        (words, may_be_idle)
    }

    /// Takes in how much of its memory an application that may be idle touches.
    fn touches(&mut self, touched: Option<Permille>, least: Permille, now: Nanos) -> Option<StateEvent> {
        // Where accesses cannot be told, resting is all there is to go by.
        if touched.is_some_and(|touched| touched.0 >= least.0) {
            self.active_at = now;
            return None;
        }
        self.idle = true;
        Some(StateEvent::Idle(true))
    }
}

/// Watches all applications.
pub(super) struct Watch {
    root: PathBuf,
    freezers: Option<Freezers>,
    table: Table,
    apps: Vec<AppConfig>,
    seen: BTreeMap<String, Seen>,
    accesses: Option<Box<dyn Accesses>>,
}

impl Watch {
    pub(super) fn new(root: &Path, accesses: Option<Box<dyn Accesses>>) -> Self {
        Self {
            root: root.to_owned(),
            freezers: Freezers::find(root).ok(),
            table: Table::new(root),
            apps: Vec::new(),
            seen: BTreeMap::new(),
            accesses,
        }
    }

    pub(super) fn configure(&mut self, table: Table, apps: Vec<AppConfig>) {
        self.seen
            .retain(|name, _| apps.iter().any(|app| app.name == *name));
        (self.table, self.apps) = (table, apps);
    }

    /// Looks at every application once and gives the words that follow, with whom they are about.
    pub(super) fn look(&mut self, tell: &mut dyn FnMut(&str, StateEvent)) {
        let mut looked = false;
        for nth in 0..self.apps.len() {
            let name = self.apps[nth].name.clone();
            let sight = self.sight(&name);
            let pids = sight.pids.clone();
            let app = &self.apps[nth];
            let seen = self.seen.entry(name.clone()).or_default();
            let (words, may_be_idle) = seen.see(sight, clock::monotonic(), app.idle_after);
            words.into_iter().for_each(|word| tell(&name, word));
            // One a round: a look takes a while, and the other sources wait.
            if may_be_idle && !std::mem::replace(&mut looked, true) {
                let touched = self
                    .accesses
                    .as_mut()
                    .and_then(|accesses| accesses.touched(&pids, LOOK));
                if let Some(word) = seen.touches(touched, app.idle_touched, clock::monotonic()) {
                    tell(&name, word);
                }
            }
        }
    }

    fn sight(&mut self, name: &str) -> Observation {
        let pids = self.table.pids(name);
        let score = |pid: &u32| {
            proc::text(&self.root, *pid, "oom_score_adj")
                .ok()?
                .trim()
                .parse::<i16>()
                .ok()
        };
        let cpu = |pid: &u32| {
            stat::read(&self.root, *pid)
                .ok()
                .map(|stat| stat.utime + stat.stime)
        };
        let freezers = self.freezers.as_ref();
        Observation {
            oom_score_adj: pids.iter().filter_map(score).min(),
            frozen: pids.first().and_then(|pid| freezers?.is_frozen(*pid)),
            cpu: pids.iter().filter_map(cpu).sum(),
            pids,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(adj: i16, frozen: bool, cpu_ms: u64) -> Observation {
        Observation {
            pids: vec![7],
            oom_score_adj: Some(adj),
            frozen: Some(frozen),
            cpu: Nanos::millis(cpu_ms),
        }
    }

    #[test]
    fn changes_are_words_and_what_stays_is_not() {
        let mut seen = Seen::default();
        let mut see = |secs, sight| seen.see(sight, Nanos::secs(secs), None).0;
        assert_eq!(see(0, sight(900, true, 0)), [StateEvent::Frozen(true)]);
        assert_eq!(see(2, sight(900, true, 0)), []);
        assert_eq!(see(4, sight(0, true, 0)), [StateEvent::OomScoreAdj(0)]);
        assert_eq!(see(6, sight(0, false, 0)), [StateEvent::Frozen(false)]);
        assert_eq!(see(8, sight(900, false, 0)), [StateEvent::OomScoreAdj(900)]);
        assert_eq!(see(10, Observation::default()), [], "it has ended");
    }

    #[test]
    fn who_rests_for_long_enough_and_touches_little_is_idle() {
        let mut seen = Seen::default();
        let after = Some(Nanos::secs(10));
        seen.see(sight(0, false, 0), Nanos::ZERO, after);
        // A hundredth of a CPU is rest, more is not.
        assert!(!seen.see(sight(0, false, 20), Nanos::secs(2), after).1);
        assert!(!seen.see(sight(0, false, 300), Nanos::secs(4), after).1);
        assert!(!seen.see(sight(0, false, 300), Nanos::secs(13), after).1);
        assert!(seen.see(sight(0, false, 300), Nanos::secs(14), after).1);
        assert_eq!(
            seen.touches(Some(Permille(10)), Permille(10), Nanos::secs(15)),
            None
        );
        assert!(
            !seen.see(sight(0, false, 300), Nanos::secs(16), after).1,
            "it touches memory"
        );
        assert!(seen.see(sight(0, false, 300), Nanos::secs(26), after).1);
        assert_eq!(
            seen.touches(Some(Permille(9)), Permille(10), Nanos::secs(26)),
            Some(StateEvent::Idle(true))
        );
        assert_eq!(
            seen.see(sight(0, false, 300), Nanos::secs(28), after),
            (vec![], false)
        );
        assert_eq!(
            seen.see(sight(0, false, 900), Nanos::secs(30), after).0,
            [StateEvent::Idle(false)]
        );
    }

    #[test]
    fn without_a_time_nobody_is_idle() {
        let mut seen = Seen::default();
        seen.see(sight(0, false, 0), Nanos::ZERO, None);
        assert_eq!(
            seen.see(sight(0, false, 0), Nanos::secs(9999), None),
            (vec![], false)
        );
    }
}
