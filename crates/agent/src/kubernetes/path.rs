//! The pod and the container of a process, by the path of its control group.
//!
//! The kubelet names groups of pods by their UID and class of service, and the container runtime names those
//! of containers by their ID. Two drivers write the same facts differently:
//!
//! * cgroupfs: `/kubepods/burstable/podUID/ID`
//! * systemd: `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/RUNTIME-ID.scope`,
//!   with underscores in place of the dashes of the UID
//!
//! A container whose cgroup namespace is its own sees others relative to its own group:
//! `/../../podUID/ID`. Then the class may be hidden. `crates/agent/tests/cgroups` has recorded layouts.

use thermo_kernel::cgroup::GroupPath;

/// Hexadecimal digits of the ID of a container.
const CONTAINER_DIGITS: usize = 64;
/// Lengths of the parts of a UID between dashes.
const UID_PARTS: [usize; 5] = [8, 4, 4, 4, 12];
/// Hexadecimal digits of the UID of a static pod: the hash of its configuration.
const HASH_DIGITS: usize = 32;

/// The class of service of a pod, which follows from the requests and limits of its containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QosClass {
    /// Each container has limits for CPU and memory, and requests equal to them.
    Guaranteed,
    /// Some container has a request or a limit.
    Burstable,
    /// No container has a request or a limit.
    BestEffort,
}

impl QosClass {
    /// The name as Kubernetes writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// What a control group says of the pod that its processes belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPath {
    /// UID of the pod; of a static pod the hash of its configuration.
    pub uid: String,
    /// The class of service, if the path shows it.
    pub qos: Option<QosClass>,
    /// ID of the container; `None` for processes beside containers, like those of the runtime.
    pub container: Option<String>,
}

impl PodPath {
    /// The pod of a process with these control groups. `None`: it is not in a pod.
    ///
    /// Hierarchies of version 1 may disagree: systemd may move a process from the group of its container to
    /// that of the pod in one of them. So a group that names the container counts before others of the pod.
    #[must_use]
    pub fn of(groups: &[GroupPath]) -> Option<Self> {
        let mut pods = groups.iter().filter_map(|group| Self::parse(&group.path));
        let first = pods.next()?;
        if first.container.is_some() {
            return Some(first);
        }
        let with_container = pods.find(|pod| pod.container.is_some() && pod.uid == first.uid);
        Some(with_container.unwrap_or(first))
    }

    /// The pod of a control group. The outermost pod counts: a container may name the groups inside its own
    /// as it likes. Groups below `user.slice` do not count, because users name them.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if parts.first() == Some(&"user.slice") {
            return None;
        }
        parts.iter().enumerate().find_map(|(nth, part)| {
            let (before, rest) = (parts.get(..nth)?, parts.get(nth + 1..)?);
            // A runtime that does not use systemd, with a path for systemd: `NAME.slice:RUNTIME:ID`.
            let (name, inside) = match part.split_once(".slice:") {
                Some((name, inside)) => (name, Some(inside)),
                None => (part.strip_suffix(".slice").unwrap_or(part), rest.first().copied()),
            };
            let (uid, qos) = systemd_pod(name).or_else(|| cgroupfs_pod(name, before))?;
            Some(Self {
                uid,
                qos,
                container: inside.and_then(container_id),
            })
        })
    }
}

/// `kubepods-burstable-podUID`, also below a slice: `kubelet-kubepods-burstable-podUID`.
fn systemd_pod(name: &str) -> Option<(String, Option<QosClass>)> {
    let (class, uid) = name.rsplit_once("-pod")?;
    let (_, class) = class.split_once("kubepods")?;
    let qos = match class {
        "" => QosClass::Guaranteed,
        "-burstable" => QosClass::Burstable,
        "-besteffort" => QosClass::BestEffort,
        _ => return None,
    };
    Some((pod_uid(&uid.replace('_', "-"))?, Some(qos)))
}

/// `podUID` below `kubepods`, or below groups that are outside of our cgroup namespace.
fn cgroupfs_pod(name: &str, before: &[&str]) -> Option<(String, Option<QosClass>)> {
    let uid = pod_uid(name.strip_prefix("pod")?)?;
    let (class, outer) = match before.split_last()? {
        (&"burstable", outer) => (Some(QosClass::Burstable), outer.last()?),
        (&"besteffort", outer) => (Some(QosClass::BestEffort), outer.last()?),
        (&"kubepods", _) => (Some(QosClass::Guaranteed), &"kubepods"),
        (outer, _) => (None, outer),
    };
    matches!(*outer, "kubepods" | "..").then_some((uid, class))
}

fn pod_uid(text: &str) -> Option<String> {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_uuid = text.split('-').map(str::len).eq(UID_PARTS) && text.split('-').all(is_hex);
    let is_hash = text.len() == HASH_DIGITS && is_hex(text);
    (is_uuid || is_hash).then(|| text.to_owned())
}

/// `ID`, `crio-ID`, `cri-containerd-ID.scope`, `docker-ID.scope` or `cri-containerd:ID`. CRI-O keeps the
/// monitor of a container in `crio-conmon-ID`, which is not the container.
fn container_id(name: &str) -> Option<String> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let (runtime, id) = name.rsplit_once(['-', ':']).unwrap_or(("", name));
    let is_id = id.len() == CONTAINER_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id && !runtime.ends_with("conmon")).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    fn parse(path: &str) -> Option<(String, Option<QosClass>, Option<String>)> {
        PodPath::parse(path).map(|pod| (pod.uid, pod.qos, pod.container))
    }

    #[test]
    fn paths_that_are_not_of_pods_are_refused() {
        let id = "ab".repeat(32);
        for path in [
            "/",
            "/kubepods",
            "/kubepods/burstable",
            "/kubepods.slice/kubepods-burstable.slice",
            "/kubepods/burstable/podcast",
            "/kubepods/burstable/pod0a1b2c3d-1111-2222-3333",
            "/kubepods.slice/kubepods-silver.slice/kubepods-silver-pod0a1b2c3d_1111_2222_3333_444455556666.slice",
            &format!("/pod{UID}/{id}"),
            &format!("/docker/{id}/pod{UID}"),
            &format!("/machine.slice/libpod-pod_{id}.slice/libpod-{id}.scope"),
            &format!("/user.slice/user-7.slice/user@7.service/kubepods/pod{UID}/{id}"),
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
    }

    #[test]
    fn hierarchy_that_names_the_container_counts_first() {
        let id = "ab".repeat(32);
        let pod = format!("/kubepods/burstable/pod{UID}");
        let other = pod.replace('0', "9");
        let of = |paths: &[&str]| {
            let group = |path: &&str| GroupPath {
                controllers: String::new(),
                path: (*path).to_owned(),
            };
            let groups: Vec<GroupPath> = paths.iter().map(group).collect();
            PodPath::of(&groups).map(|found| (found.uid, found.container))
        };
        let in_container = of(&["/", &pod, &format!("{pod}/{id}")]);
        assert_eq!(in_container, Some((UID.to_owned(), Some(id.clone()))));
        let in_another_pod = of(&["/", &pod, &format!("{other}/{id}")]);
        assert_eq!(in_another_pod, Some((UID.to_owned(), None)));
        assert_eq!(of(&["/"]), None);
    }

    #[test]
    fn outermost_pod_counts() {
        let (id, inner) = ("ab".repeat(32), UID.replace('0', "9"));
        let path = format!("/kubepods/besteffort/pod{UID}/{id}/kubepods/pod{inner}/{id}");
        let expected = (UID.to_owned(), Some(QosClass::BestEffort), Some(id));
        assert_eq!(parse(&path), Some(expected));
    }

    #[test]
    fn monitor_of_a_container_is_not_the_container() {
        let id = "ab".repeat(32);
        let path = format!("/kubepods/pod{UID}/crio-conmon-{id}");
        assert_eq!(
            parse(&path),
            Some((UID.to_owned(), Some(QosClass::Guaranteed), None))
        );
    }
}
