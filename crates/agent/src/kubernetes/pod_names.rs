//! Names of the pods of this node, and when to ask the kubelet for them again.
//!
//! One request lists the whole node, so requests follow unknown pods, not pods or processes. A pod that is
//! not in the list is asked for again after growing times: the kubelet may learn of a container after the
//! agent. A container of a known pod that stays unknown is the pod's sandbox, which has no name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thermo_kernel::cgroup::GroupPath;
use thermo_units::Nanos;

use super::path::PodPath;
use super::pod_list::Pod;

/// Time between two lists at least.
const LIST_EVERY: Nanos = Nanos::secs(10);
/// After a failure the kubelet is asked again after this time, which doubles with each further failure.
const RETRY_AFTER: Nanos = Nanos::secs(1);
/// The longest time between two tries.
const RETRY_WITHIN: Nanos = Nanos::secs(300);
/// A container that is in none of so many lists has no name.
const CONTAINER_TRIES: u32 = 3;

/// The pod of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIdentity {
    /// What the control group says.
    pub path: PodPath,
    /// The names of the pod, once they are known.
    pub pod: Option<Arc<Pod>>,
    /// The name of the container, if it has one and it is known.
    pub container_name: Option<String>,
    /// Names not yet reported by the kubelet.
    pub missing: MissingNames,
}

/// Names of a process not yet reported by the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingNames {
    /// Nothing: what it does not name has no name.
    Nothing,
    /// The name of the container.
    Container,
    /// The names of pod and container.
    Pod,
}

/// Names that were asked for, and when they are asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unknown {
    tries: u32,
    next: Nanos,
}

/// The names of the pods of this node.
#[derive(Debug, Default)]
pub struct PodNames {
    is_enabled: bool,
    /// Pods by UID; a static pod also by its hash.
    pods: BTreeMap<String, Arc<Pod>>,
    /// UIDs and IDs of containers without names.
    unknown: BTreeMap<String, Unknown>,
    /// Containers of known pods that have no name.
    nameless: BTreeSet<String>,
    is_asking: bool,
    nr_failures: u32,
    not_before: Nanos,
}

impl PodNames {
    /// No name is known yet. If not `is_enabled`, none will be.
    #[must_use]
    pub fn new(is_enabled: bool) -> Self {
        Self {
            is_enabled,
            ..Self::default()
        }
    }

    /// The pod of a process with these control groups; `None`: it is not in a pod.
    #[must_use]
    pub fn look_up(&self, groups: &[GroupPath]) -> Option<PodIdentity> {
        PodPath::of(groups).map(|path| self.complete(path))
    }

    /// Looks up again what is known of the pod.
    #[must_use]
    pub fn complete(&self, path: PodPath) -> PodIdentity {
        let pod = self.pods.get(&path.uid).cloned();
        let name_in = |pod: &Arc<Pod>| pod.containers.get(path.container.as_ref()?).cloned();
        let container_name = pod.as_ref().and_then(name_in);
        let is_nameless = path
            .container
            .as_ref()
            .is_none_or(|id| container_name.is_some() || self.nameless.contains(id));
        let missing = match pod {
            _ if !self.is_enabled => MissingNames::Nothing,
            None => MissingNames::Pod,
            Some(_) if is_nameless => MissingNames::Nothing,
            Some(_) => MissingNames::Container,
        };
        PodIdentity {
            path,
            pod,
            container_name,
            missing,
        }
    }

    /// Asks for what is not known of the pod.
    pub fn want(&mut self, identity: &PodIdentity, now: Nanos) {
        let key = match identity.missing {
            MissingNames::Nothing => return,
            MissingNames::Pod => Some(&identity.path.uid),
            MissingNames::Container => identity.path.container.as_ref(),
        };
        if let Some(key) = key {
            let new = Unknown { tries: 0, next: now };
            self.unknown.entry(key.clone()).or_insert(new);
        }
    }

    /// Whether the kubelet is to be asked now.
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        let wants = |unknown: &Unknown| unknown.next <= now;
        !self.is_asking && now >= self.not_before && self.unknown.values().any(wants)
    }

    /// The kubelet was asked.
    pub const fn set_asked(&mut self, now: Nanos) {
        self.is_asking = true;
        self.not_before = now.saturating_add(LIST_EVERY);
    }

    /// The kubelet gave no list.
    pub fn set_failed(&mut self, now: Nanos) {
        self.is_asking = false;
        let wait = doubled(RETRY_AFTER, self.nr_failures);
        self.nr_failures = self.nr_failures.saturating_add(1);
        self.not_before = now.saturating_add(wait);
    }

    /// The kubelet gave this list. `in_use` are UIDs and containers of processes that live: their names are
    /// kept also if the pod is no longer in the list, and nobody else's are asked for again.
    pub fn set_listed(&mut self, listed: Vec<Pod>, in_use: &BTreeSet<String>, now: Nanos) {
        (self.is_asking, self.nr_failures) = (false, 0);
        let before = std::mem::take(&mut self.pods);
        for mut pod in listed {
            for old in pod.uids.iter().filter_map(|uid| before.get(uid)) {
                let used = old.containers.iter().filter(|(id, _)| in_use.contains(*id));
                let used: Vec<_> = used.map(|(id, name)| (id.clone(), name.clone())).collect();
                used.into_iter().for_each(|(id, name)| {
                    pod.containers.entry(id).or_insert(name);
                });
            }
            let pod = Arc::new(pod);
            for uid in &pod.uids {
                self.pods.insert(uid.clone(), Arc::clone(&pod));
            }
        }
        for (uid, pod) in before.into_iter().filter(|(uid, _)| in_use.contains(uid)) {
            self.pods.entry(uid).or_insert(pod);
        }
        self.nameless.retain(|id| in_use.contains(id));
        self.settle(in_use, now);
    }

    /// Goes through what was unknown after a list.
    fn settle(&mut self, in_use: &BTreeSet<String>, now: Nanos) {
        let (pods, nameless) = (&self.pods, &mut self.nameless);
        let named: BTreeSet<&String> = pods.values().flat_map(|pod| pod.containers.keys()).collect();
        self.unknown.retain(|key, unknown| {
            let is_known = pods.contains_key(key) || named.contains(key);
            if is_known || !in_use.contains(key) {
                return false;
            }
            // IDs of containers are longer than UIDs.
            let is_container = key.len() > MAX_UID;
            unknown.next = now.saturating_add(doubled(LIST_EVERY, unknown.tries));
            unknown.tries = unknown.tries.saturating_add(1);
            let gives_up = is_container && unknown.tries >= CONTAINER_TRIES;
            if gives_up {
                nameless.insert(key.clone());
            }
            !gives_up
        });
    }

    /// Pods that are known.
    #[must_use]
    pub fn nr_pods(&self) -> usize {
        let distinct: BTreeSet<_> = self.pods.values().map(Arc::as_ptr).collect();
        distinct.len()
    }
}

/// Characters of a UID: 36, of a static pod 32.
const MAX_UID: usize = 36;

/// `time`, doubled `times` times, at most [`RETRY_WITHIN`].
fn doubled(time: Nanos, times: u32) -> Nanos {
    let factor = 1_u64.checked_shl(times).unwrap_or(u64::MAX);
    Nanos(time.0.saturating_mul(factor)).min(RETRY_WITHIN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    fn id(letter: &str) -> String {
        letter.repeat(64)
    }

    fn path(container: &str) -> PodPath {
        PodPath {
            uid: UID.to_owned(),
            qos: None,
            container: Some(id(container)),
        }
    }

    fn pod(containers: &[&str]) -> Pod {
        Pod {
            uids: vec![UID.to_owned()],
            name: "web-0".to_owned(),
            containers: containers
                .iter()
                .map(|one| (id(one), format!("c-{one}")))
                .collect(),
            ..Pod::default()
        }
    }

    fn in_use(containers: &[&str]) -> BTreeSet<String> {
        containers
            .iter()
            .map(|one| id(one))
            .chain([UID.to_owned()])
            .collect()
    }

    /// Wants the names, and says whether the kubelet is asked.
    fn asks(names: &mut PodNames, container: &str, now: Nanos) -> bool {
        let identity = names.complete(path(container));
        names.want(&identity, now);
        let is_due = names.is_due(now);
        if is_due {
            names.set_asked(now);
        }
        is_due
    }

    #[test]
    fn one_list_names_all_and_is_not_repeated() {
        let mut names = PodNames::new(true);
        assert!(asks(&mut names, "a", Nanos::secs(1)));
        assert!(!asks(&mut names, "a", Nanos::secs(90)), "the answer is missing");
        names.set_listed(vec![pod(&["a", "b"])], &in_use(&["a"]), Nanos::secs(91));
        for (container, name) in [("a", "c-a"), ("b", "c-b")] {
            assert!(!asks(&mut names, container, Nanos::secs(900)));
            let known = names.complete(path(container));
            assert_eq!(
                (known.container_name.as_deref(), known.missing),
                (Some(name), MissingNames::Nothing)
            );
            assert_eq!(known.pod.unwrap().name, "web-0");
        }
    }

    #[test]
    fn failures_are_retried_after_doubling_times() {
        let mut names = PodNames::new(true);
        let mut now = Nanos::ZERO;
        let mut waits = Vec::new();
        for _ in 0..11 {
            let asked = (0..400).find(|wait| asks(&mut names, "a", now.saturating_add(Nanos::secs(*wait))));
            now = now.saturating_add(Nanos::secs(asked.unwrap()));
            waits.push(asked.unwrap());
            names.set_failed(now);
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        // A list ends it.
        now = now.saturating_add(Nanos::secs(300));
        assert!(asks(&mut names, "a", now));
        names.set_listed(vec![], &in_use(&["a"]), now);
        names.set_asked(now);
        names.set_failed(now);
        assert!(asks(&mut names, "a", now.saturating_add(Nanos::secs(10))));
    }

    #[test]
    fn lists_are_ten_seconds_apart_however_many_pods_appear() {
        let mut names = PodNames::new(true);
        let lists = (0..600_u32).filter(|nth| {
            let now = Nanos::millis(u64::from(*nth) * 100);
            let mut new = path("a");
            new.uid = format!("0a1b2c3d-1111-2222-3333-{nth:012}");
            let identity = names.complete(new);
            names.want(&identity, now);
            let is_due = names.is_due(now);
            if is_due {
                names.set_asked(now);
                names.set_listed(vec![], &BTreeSet::new(), now);
            }
            is_due
        });
        assert_eq!(lists.count(), 6, "in a minute");
    }

    #[test]
    fn sandbox_is_given_up_and_an_unlisted_pod_is_not() {
        let mut names = PodNames::new(true);
        let mut lists = Vec::new();
        for second in 0..2000 {
            let now = Nanos::secs(second);
            if asks(&mut names, "f", now) {
                lists.push(second);
                names.set_listed(vec![pod(&["a"])], &in_use(&["f"]), now);
            }
        }
        // At 0 the pod was unknown, and then the container in each of three lists.
        assert_eq!(lists, [0, 10, 20, 40]);
        let sandbox = names.complete(path("f"));
        assert_eq!(
            (sandbox.container_name, sandbox.missing),
            (None, MissingNames::Nothing)
        );

        let mut names = PodNames::new(true);
        let lists = (0..2000).filter(|second| {
            let now = Nanos::secs(*second);
            let asks = asks(&mut names, "a", now);
            if asks {
                names.set_listed(vec![], &in_use(&["a"]), now);
            }
            asks
        });
        assert_eq!(
            lists.collect::<Vec<_>>(),
            [0, 10, 30, 70, 150, 310, 610, 910, 1210, 1510, 1810]
        );
    }

    #[test]
    fn names_are_kept_while_processes_live() {
        let mut names = PodNames::new(true);
        names.set_listed(vec![pod(&["a", "b"])], &in_use(&["a"]), Nanos::ZERO);
        // The container was started again: it has another ID.
        names.set_listed(vec![pod(&["c"])], &in_use(&["a"]), Nanos::ZERO);
        let name = |names: &PodNames, container| names.complete(path(container)).container_name;
        assert_eq!(name(&names, "a").as_deref(), Some("c-a"));
        assert_eq!(name(&names, "b"), None);
        names.set_listed(vec![], &in_use(&["a"]), Nanos::ZERO);
        assert_eq!((name(&names, "a").as_deref(), names.nr_pods()), (Some("c-a"), 1));
        names.set_listed(vec![], &BTreeSet::new(), Nanos::ZERO);
        assert_eq!((name(&names, "a"), names.nr_pods()), (None, 0));
    }

    #[test]
    fn nothing_is_asked_unless_enabled() {
        let mut names = PodNames::new(false);
        assert!(!asks(&mut names, "a", Nanos::secs(1)));
        assert_eq!(names.complete(path("a")).missing, MissingNames::Nothing);
    }
}
