//! Tracker `kdamond` on a tree of plain files: what is written for the kernel, and what is read back.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use thermo_backends::offload::{Claim, Offloaded};
use thermo_engine::ops::Offload as _;
use thermo_engine::{Action, Attrs, Operations as _, Scheme};
use thermo_targets::{LayoutRule, TargetSpec, TrackedProcesses};

/// A target process that waits for the end of a pipe.
struct Target(Child);

impl Target {
    fn start() -> Self {
        Self(
            Command::new("cat")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A sysfs tree with one context of this many targets and schemes. Plain files do not create subdirectories
/// on a write.
fn tree(targets: usize, schemes: usize) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("sys/kernel/mm/damon/admin/kdamonds");
    write(dir.join("nr_kdamonds"), "0\n");
    write(dir.join("0/state"), "off\n");
    write(dir.join("0/pid"), "4242\n");
    write(root.path().join("proc/4242/schedstat"), "5000000 0 0\n");
    let context = dir.join("0/contexts/0");
    write(dir.join("0/contexts/nr_contexts"), "");
    for name in ["sample_us", "aggr_us", "update_us"] {
        write(context.join("monitoring_attrs/intervals").join(name), "");
    }
    for name in [
        "operations",
        "monitoring_attrs/nr_regions/min",
        "monitoring_attrs/nr_regions/max",
    ] {
        write(context.join(name), "");
    }
    write(context.join("targets/nr_targets"), "");
    write(context.join("schemes/nr_schemes"), "");
    for nth in 0..targets {
        write(context.join(format!("targets/{nth}/pid_target")), "");
    }
    for nth in 0..schemes {
        scheme(&context.join(format!("schemes/{nth}")));
    }
    (root, dir)
}

fn scheme(dir: &Path) {
    for bound in ["sz", "nr_accesses", "age"] {
        write(dir.join(format!("access_pattern/{bound}/min")), "");
        write(dir.join(format!("access_pattern/{bound}/max")), "");
    }
    for name in ["action", "filters/nr_filters"] {
        write(dir.join(name), "");
    }
    for name in ["type", "matching", "damon_target_idx"] {
        write(dir.join("filters/0").join(name), "");
    }
    for name in ["nr_tried", "sz_tried", "nr_applied", "sz_applied", "qt_exceeds"] {
        write(dir.join("stats").join(name), "7\n");
    }
    fs::create_dir_all(dir.join("tried_regions")).unwrap();
}

fn tried(dir: &Path, scheme: usize, number: usize, values: [u64; 4]) {
    let folder = dir.join(format!("0/contexts/0/schemes/{scheme}/tried_regions/{number}"));
    for (name, value) in ["start", "end", "nr_accesses", "age"].into_iter().zip(values) {
        write(folder.join(name), &format!("{value}\n"));
    }
}

fn monitor(root: &Path, targets: &[&Target]) -> Offloaded {
    let spec = TargetSpec {
        pids: targets.iter().map(|target| target.0.id()).collect(),
        children: false,
        orphans: false,
        cgroup: None,
        waits_for_cgroup: false,
        selected: false,
        system: false,
        exclude: Vec::new(),
        layout: LayoutRule::ThreeRegions,
    };
    let processes = TrackedProcesses::new(Path::new("/"), spec).unwrap();
    Offloaded::new(root.to_owned(), processes, Claim::take(root).unwrap())
}

/// Content of a file. Files are written without truncation, so the rest of a longer old text stays behind.
fn content(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

fn state_begins_with(dir: &Path, word: &str) {
    let state = content(dir, "0/state");
    assert!(state.starts_with(word), "{state:?} is not {word}");
}

#[test]
fn context_is_offloaded_read_and_released() {
    let (root, dir) = tree(1, 2);
    let target = Target::start();
    let mut ops = monitor(root.path(), &[&target]);
    ops.update().unwrap();
    ops.commit_parameters(&Attrs::default(), &[Scheme::new(Action::Pageout)])
        .unwrap();
    state_begins_with(&dir, "on");
    assert_eq!(
        content(&dir, "0/contexts/0/targets/0/pid_target"),
        target.0.id().to_string()
    );
    assert_eq!(content(&dir, "0/contexts/0/schemes/0/action"), "stat");
    assert_eq!(content(&dir, "0/contexts/0/schemes/1/action"), "pageout");
    tried(&dir, 0, 0, [4096, 8192, 20, 3]);
    tried(&dir, 0, 1, [8192, 16384, 0, 9]);
    let snapshot = ops.follow().unwrap();
    let (_, regions) = &snapshot.targets[0];
    let found: Vec<(u64, u32, u32)> = regions
        .iter()
        .map(|r| (r.range.start.0, r.nr_accesses, r.age))
        .collect();
    assert_eq!(found, [(4096, 20, 3), (8192, 0, 9)]);
    assert_eq!(snapshot.schemes[0].nr_tried, 7);
    assert_eq!(
        ops.external_cpu_time().0,
        5_000_000,
        "the CPU time of the kernel's thread is reported"
    );
    drop(ops);
    state_begins_with(&dir, "off");
    assert!(content(&dir, "nr_kdamonds").starts_with('0'));
}

#[test]
fn only_changes_are_committed() {
    let (root, dir) = tree(1, 1);
    let target = Target::start();
    let mut ops = monitor(root.path(), &[&target]);
    ops.update().unwrap();
    ops.commit_parameters(&Attrs::default(), &[]).unwrap();
    fs::write(dir.join("0/state"), "on\n").unwrap();
    ops.commit_parameters(&Attrs::default(), &[]).unwrap();
    assert_eq!(content(&dir, "0/state"), "on\n", "nothing was written");
    let more = Attrs {
        max_nr_regions: 2000,
        ..Attrs::default()
    };
    ops.commit_parameters(&more, &[]).unwrap();
    state_begins_with(&dir, "commit");
    assert_eq!(
        content(&dir, "0/contexts/0/monitoring_attrs/nr_regions/max"),
        "2000"
    );
}

#[test]
fn each_target_has_a_monitoring_scheme() {
    let (root, dir) = tree(2, 2);
    let (one, two) = (Target::start(), Target::start());
    let mut ops = monitor(root.path(), &[&one, &two]);
    let layouts = ops.update().unwrap();
    ops.commit_parameters(&Attrs::default(), &[]).unwrap();
    tried(&dir, 0, 0, [4096, 8192, 1, 0]);
    // In 6.12 region numbers continue from scheme to scheme.
    tried(&dir, 1, 1, [4096, 12288, 2, 0]);
    assert_eq!(
        content(&dir, "0/contexts/0/schemes/1/filters/0/damon_target_idx"),
        "1"
    );
    let snapshot = ops.follow().unwrap();
    let ends: Vec<_> = snapshot
        .targets
        .iter()
        .map(|(id, regions)| (*id, regions[0].range.end.0))
        .collect();
    assert_eq!(ends, [(layouts[0].id, 8192), (layouts[1].id, 12288)]);
}

#[test]
fn kdamond_does_not_run_without_targets() {
    let (root, dir) = tree(1, 1);
    let mut target = Target::start();
    let mut ops = monitor(root.path(), &[&target]);
    target.0.kill().unwrap();
    target.0.wait().unwrap();
    ops.update().unwrap();
    ops.commit_parameters(&Attrs::default(), &[]).unwrap();
    assert_eq!(content(&dir, "0/state"), "off\n");
    assert!(ops.follow().unwrap().targets.is_empty());
    assert!(!ops.any_target_left());
}
