//! State sources other than the socket: the cgroup freezer, `oom_score_adj`, and idleness.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thermo_kernel::cgroup::Freezers;
use thermo_kernel::{clock, proc, stat};
use thermo_units::{Nanos, Permille};

use super::config::AppConfig;
use super::state::StateEvent;
use super::table::AppTable;

/// An application counts as running if it uses more than 1/100 of one CPU.
const IDLE_CPU_DIVISOR: u64 = 100;
/// Duration of an access check.
const ACCESS_CHECK_TIME: Nanos = Nanos::secs(1);

/// Measures memory accesses. The caller of the daemon implements it, as it knows which monitoring methods
/// work here.
pub trait AccessProbe: Send {
    /// The share of the resident memory of `pids` that is accessed within `time`; `None` if it cannot be
    /// measured. Blocks for `time`.
    fn accessed_share(&mut self, pids: &[u32], time: Nanos) -> Option<Permille>;
}

/// An application at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Observation {
    pids: Vec<u32>,
    /// The lowest value of all processes.
    oom_score_adj: Option<i16>,
    frozen: Option<bool>,
    /// CPU time of all processes.
    cpu: Nanos,
}

/// The last observation of an application, and its idleness.
#[derive(Debug, Default)]
struct Activity {
    last: Option<(Nanos, Observation)>,
    active_at: Nanos,
    idle: bool,
}

impl Activity {
    /// Adds an observation. Returns the events, and whether the application may be idle: then an access check
    /// has to follow.
    fn update(
        &mut self,
        seen: Observation,
        now: Nanos,
        idle_after: Option<Nanos>,
    ) -> (Vec<StateEvent>, bool) {
        let mut events = Vec::new();
        let Some((then, before)) = self.last.replace((now, seen.clone())) else {
            self.active_at = now;
            // The first oom_score_adj may be old and is ignored. A frozen application is unused for certain.
            events.extend(seen.frozen.filter(|frozen| *frozen).map(StateEvent::Frozen));
            return (events, false);
        };
        if let Some(adj) = seen
            .oom_score_adj
            .filter(|adj| before.oom_score_adj.is_some_and(|was| was != *adj))
        {
            events.push(StateEvent::OomScoreAdj(adj));
        }
        if seen.frozen.unwrap_or(false) != before.frozen.unwrap_or(false) {
            events.push(StateEvent::Frozen(seen.frozen.unwrap_or(false)));
        }
        let cpu = seen.cpu.saturating_sub(before.cpu);
        let is_running = cpu.0 * IDLE_CPU_DIVISOR > now.saturating_sub(then).0;
        if is_running || seen.pids != before.pids {
            self.active_at = now;
        }
        if self.idle && self.active_at == now {
            self.idle = false;
            events.push(StateEvent::Idle(false));
        }
        let idle_time = now.saturating_sub(self.active_at);
        let may_be_idle =
            !self.idle && !seen.pids.is_empty() && idle_after.is_some_and(|after| idle_time >= after);
        (events, may_be_idle)
    }

    /// Adds the result of an access check. The application is idle if less than `threshold` was accessed, or
    /// if accesses cannot be measured.
    fn add_access_check(
        &mut self,
        accessed: Option<Permille>,
        threshold: Permille,
        now: Nanos,
    ) -> Option<StateEvent> {
        if accessed.is_some_and(|accessed| accessed.0 >= threshold.0) {
            self.active_at = now;
            return None;
        }
        self.idle = true;
        Some(StateEvent::Idle(true))
    }
}

/// Polls the sources of all applications.
pub(super) struct StateSources {
    root: PathBuf,
    freezers: Option<Freezers>,
    table: AppTable,
    apps: Vec<AppConfig>,
    activity: BTreeMap<String, Activity>,
    access_probe: Option<Box<dyn AccessProbe>>,
}

impl StateSources {
    pub(super) fn new(root: &Path, access_probe: Option<Box<dyn AccessProbe>>) -> Self {
        Self {
            root: root.to_owned(),
            freezers: Freezers::find(root).ok(),
            table: AppTable::new(root),
            apps: Vec::new(),
            activity: BTreeMap::new(),
            access_probe,
        }
    }

    pub(super) fn configure(&mut self, table: AppTable, apps: Vec<AppConfig>) {
        self.activity
            .retain(|name, _| apps.iter().any(|app| app.name == *name));
        (self.table, self.apps) = (table, apps);
    }

    /// Polls every application once and emits the events, each with the application's name.
    pub(super) fn poll(&mut self, emit: &mut dyn FnMut(&str, StateEvent)) {
        let mut access_checked = false;
        for nth in 0..self.apps.len() {
            let Some(app) = self.apps.get(nth) else { break };
            let (name, idle_after, idle_touched) = (app.name.clone(), app.idle_after, app.idle_touched);
            let observation = self.observe(&name);
            let pids = observation.pids.clone();
            let activity = self.activity.entry(name.clone()).or_default();
            let (events, may_be_idle) = activity.update(observation, clock::monotonic(), idle_after);
            events.into_iter().for_each(|event| emit(&name, event));
            // At most one access check per poll, because it delays the other sources.
            if may_be_idle && !std::mem::replace(&mut access_checked, true) {
                let accessed = self
                    .access_probe
                    .as_mut()
                    .and_then(|probe| probe.accessed_share(&pids, ACCESS_CHECK_TIME));
                if let Some(event) = activity.add_access_check(accessed, idle_touched, clock::monotonic()) {
                    emit(&name, event);
                }
            }
        }
    }

    fn observe(&mut self, name: &str) -> Observation {
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

    fn seen(adj: i16, frozen: bool, cpu_ms: u64) -> Observation {
        Observation {
            pids: vec![7],
            oom_score_adj: Some(adj),
            frozen: Some(frozen),
            cpu: Nanos::millis(cpu_ms),
        }
    }

    #[test]
    fn sources_emit_events_on_change_only() {
        let mut activity = Activity::default();
        let mut update = |secs, seen| activity.update(seen, Nanos::secs(secs), None).0;
        assert_eq!(update(0, seen(900, true, 0)), [StateEvent::Frozen(true)]);
        assert_eq!(update(2, seen(900, true, 0)), []);
        assert_eq!(update(4, seen(0, true, 0)), [StateEvent::OomScoreAdj(0)]);
        assert_eq!(update(6, seen(0, false, 0)), [StateEvent::Frozen(false)]);
        assert_eq!(update(8, seen(900, false, 0)), [StateEvent::OomScoreAdj(900)]);
        assert_eq!(
            update(10, Observation::default()),
            [],
            "the application has ended"
        );
    }

    #[test]
    fn app_is_idle_without_cpu_use_and_accesses() {
        let mut activity = Activity::default();
        let after = Some(Nanos::secs(10));
        activity.update(seen(0, false, 0), Nanos::ZERO, after);
        // 1/100 of a CPU counts as idle, more does not.
        assert!(!activity.update(seen(0, false, 20), Nanos::secs(2), after).1);
        assert!(!activity.update(seen(0, false, 300), Nanos::secs(4), after).1);
        assert!(!activity.update(seen(0, false, 300), Nanos::secs(13), after).1);
        assert!(activity.update(seen(0, false, 300), Nanos::secs(14), after).1);
        assert_eq!(
            activity.add_access_check(Some(Permille(10)), Permille(10), Nanos::secs(15)),
            None
        );
        assert!(
            !activity.update(seen(0, false, 300), Nanos::secs(16), after).1,
            "the application accesses memory"
        );
        assert!(activity.update(seen(0, false, 300), Nanos::secs(26), after).1);
        assert_eq!(
            activity.add_access_check(Some(Permille(9)), Permille(10), Nanos::secs(26)),
            Some(StateEvent::Idle(true))
        );
        assert_eq!(
            activity.update(seen(0, false, 300), Nanos::secs(28), after),
            (vec![], false)
        );
        assert_eq!(
            activity.update(seen(0, false, 900), Nanos::secs(30), after).0,
            [StateEvent::Idle(false)]
        );
    }

    #[test]
    fn app_is_never_idle_without_idle_after() {
        let mut activity = Activity::default();
        activity.update(seen(0, false, 0), Nanos::ZERO, None);
        assert_eq!(
            activity.update(seen(0, false, 0), Nanos::secs(9999), None),
            (vec![], false)
        );
    }
}
