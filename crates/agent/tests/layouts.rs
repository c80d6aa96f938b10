//! The pod of a process by `/proc/PID/cgroup`: layouts that were recorded, and published ones of what could
//! not be recorded.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use thermo_agent::identity::{Asked, Identity};
use thermo_agent::kubernetes::path::{PodPath, QosClass};

const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";
const HASH: &str = "7fccb20b4bbb99e737878eab4bb685c1";
const ID: &str = "29842d5544b701dbb5ff647dba19bb4ebec821edc6ee1ffbd7aeee58fa5038fd";

/// The pod of a process whose `/proc/PID/cgroup` has this content.
fn pod_of(groups: &str) -> Option<PodPath> {
    let root = tempfile::tempdir().unwrap();
    let process = root.path().join("proc/70");
    fs::create_dir_all(&process).unwrap();
    fs::write(process.join("cgroup"), groups).unwrap();
    let stat = format!(
        "70 (server) S 1 1 1 0 -1 {}5 1 1 1 4096 1 4096 0 0 0",
        "0 ".repeat(15)
    );
    fs::write(process.join("stat"), stat).unwrap();
    let identity = Identity::read(root.path(), 70, &Asked::default())
        .unwrap()
        .unwrap();
    PodPath::of(&identity.cgroups)
}

/// The files of a folder below `tests/cgroups`, sorted by name.
fn layouts(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cgroups")
        .join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// The value of a line `KEY: VALUE` of a recording's head; `-` means none.
fn value<'a>(head: &'a str, key: &str) -> Option<&'a str> {
    let line = head
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let value = line.unwrap_or_else(|| panic!("no {key} in: {head}"));
    (value != "-").then_some(value)
}

/// The pod that a recording's head says was asked for.
fn asked_for(head: &str) -> Option<PodPath> {
    value(head, "pod").map(|uid| PodPath {
        uid: uid.to_owned(),
        qos: match value(head, "class") {
            Some("Guaranteed") => Some(QosClass::Guaranteed),
            Some("Burstable") => Some(QosClass::Burstable),
            Some("BestEffort") => Some(QosClass::BestEffort),
            Some("hidden") => None,
            class => panic!("class {class:?} in: {head}"),
        },
        container: value(head, "container").map(str::to_owned),
    })
}

#[test]
fn recorded_layouts_have_the_pod_that_was_asked_for() {
    let mut runtimes = BTreeSet::new();
    for path in layouts("recorded") {
        let text = fs::read_to_string(&path).unwrap();
        let (head, groups) = text.split_once("\n\n").unwrap();
        assert_eq!(pod_of(groups), asked_for(head), "{}", path.display());
        let runtime = value(head, "runtime").unwrap();
        runtimes.insert(runtime.split(' ').next().unwrap().to_owned());
    }
    let expected = ["containerd", "docker.io", "podman"];
    assert!(runtimes.iter().eq(expected), "{runtimes:?} were recorded");
}

#[test]
fn published_layouts_have_their_pod() {
    use QosClass::{BestEffort, Burstable};
    let pod = |uid: &str, qos, container: Option<&str>| {
        Some(PodPath {
            uid: uid.to_owned(),
            qos: Some(qos),
            container: container.map(str::to_owned),
        })
    };
    let expected = [
        ("v1-systemd-crio-besteffort", pod(UID, BestEffort, Some(ID))),
        ("v2-cgroupfs-crio-besteffort", pod(UID, BestEffort, Some(ID))),
        ("v2-systemd-crio-conmon", pod(UID, Burstable, None)),
        ("v2-systemd-crio-nested-group", pod(UID, Burstable, Some(ID))),
        ("v2-systemd-static-pod", pod(HASH, Burstable, Some(ID))),
    ];
    let files = layouts("published");
    let names = files
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap());
    assert!(
        names.eq(expected.iter().map(|(name, _)| *name)),
        "the table lacks a file"
    );
    for (path, (name, pod)) in files.iter().zip(&expected) {
        assert_eq!(pod_of(&fs::read_to_string(path).unwrap()), *pod, "{name}");
    }
}
