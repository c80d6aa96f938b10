//! The layout of debugfs: every file, accepted and rejected values, and creation and removal of contexts.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{ChildProcess, Files, engine};
use thermo_damonfs::{Errno, Tree, Write};

const FILES: [&str; 8] = [
    "attrs",
    "init_regions",
    "kdamond_pid",
    "mk_contexts",
    "monitor_on",
    "rm_contexts",
    "schemes",
    "target_ids",
];
const ATTRS: &str = "5000 100000 60000000 10 1000\n";

fn files() -> Files {
    Files::debugfs(engine())
}

fn names(files: &Files, dir: &str) -> Vec<String> {
    let tree = files.0.tree();
    let ino = tree.find(dir).unwrap();
    tree.list(ino).unwrap().map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn debugfs_has_kernel_files() {
    let files = files();
    assert_eq!(names(&files, ""), FILES);
    files.set("mk_contexts", "other\n");
    assert_eq!(
        names(&files, "other"),
        ["attrs", "init_regions", "kdamond_pid", "schemes", "target_ids"]
    );
    let tree = files.0.tree();
    for name in FILES {
        let node = tree.node(tree.find(name).unwrap()).unwrap();
        assert_eq!(node.mode(), 0o600, "{name}");
    }
    assert!(tree.node(Tree::ROOT).unwrap().is_permanent());
    assert!(!tree.node(tree.find("other").unwrap()).unwrap().is_permanent());
    drop(tree);
    for (name, shown) in [
        ("attrs", Ok(ATTRS)),
        ("target_ids", Ok("\n")),
        ("init_regions", Ok("")),
        ("schemes", Ok("")),
        ("kdamond_pid", Ok("none\n")),
        ("monitor_on", Ok("off\n")),
        ("mk_contexts", Err(Errno::INVAL)),
        ("rm_contexts", Err(Errno::INVAL)),
    ] {
        assert_eq!(files.read(name), shown.map(str::to_owned), "{name}");
    }
}

/// Files with two targets, which initial regions need.
fn with_two_targets() -> (Files, [ChildProcess; 2]) {
    let (files, targets) = (files(), [ChildProcess::sleeping(), ChildProcess::sleeping()]);
    files.set("target_ids", format!("{} {}", targets[0].pid(), targets[1].pid()));
    (files, targets)
}

#[test]
fn debugfs_rejects_invalid_values_without_change() {
    let (files, _targets) = with_two_targets();
    let own = std::process::id().to_string();
    let wrong: [(&str, &[&str]); 8] = [
        (
            "attrs",
            &[
                "", // A line without numbers.
                "1 2 3 4",
                "1 2 3 4 5 6",
                "1 2 3 5 4",
                "1 2 3 2 5",
                "3 2 3 4 5",
                "1 2 3 4 x",
                "-1 2 3 4 5",
                "0x1 2 3 4 5",
                "1 2 3 4 18446744073709551616",
            ],
        ),
        ("target_ids", &["2147483647", "0", &own, "paddr", "4294967295"]),
        (
            "init_regions",
            &[
                "0 4096",
                "0 8192 4096",
                "0 4096 4096",
                "2 4096 8192",
                "0 4096 8192\n0 8191 12288",
                "0 8192 12288\n0 4096 8192",
                "zero 4096 8192",
            ],
        ),
        (
            "schemes",
            &[
                "1",
                "abc",
                "1 2 3 4 5 6",
                "1 2 3 4 5 6 6",
                "2 1 3 4 5 6 5",
                "1 2 4 3 5 6 5",
                "1 2 3 4 6 5 5",
                "1 2 3 4 5 6 6 0 0 0 1 2 3 1 100 3 2 1",
                "1 2 3 4 5 6 4 0 0 0 1 2 3 2 100 3 2 1",
                "2 1 2 1 10 1 3 10 1 1 1 1 1 1 1 1 2 3",
                "1 2 3 4 5 6 4 0 0 0 1 2 3 1 100 3 2",
                "1 2 3 4 5 6 4 0 0 0 1 2 3 1 100 3 2 1 7 7 7 7 7",
            ],
        ),
        ("kdamond_pid", &["1", "none"]),
        ("monitor_on", &["", "yes", "onn", "ON", "1"]),
        ("mk_contexts", &["", "  "]),
        ("rm_contexts", &["", "attrs"]),
    ];
    for (name, texts) in wrong {
        let before = files.read(name);
        for text in texts {
            let text = format!("{text}\n");
            assert_eq!(files.write(name, &text), Err(Errno::INVAL), "{text:?} to {name}");
            assert_eq!(files.read(name), before, "{text:?} to {name}");
        }
    }
    for (name, text, errno) in [
        ("monitor_on", "off", Errno::PERM),
        ("mk_contexts", "a/b", Errno::ACCESS),
        ("mk_contexts", "..", Errno::ACCESS),
        ("mk_contexts", "attrs", Errno::EXIST),
        ("rm_contexts", "nobody", Errno::NOENT),
    ] {
        assert_eq!(files.write(name, text), Err(errno), "{text:?} to {name}");
    }
    let long = "n".repeat(256);
    assert_eq!(files.write("mk_contexts", &long), Err(Errno::NAMETOOLONG));
    let many = "1 2 3 4 5 6 5\n".repeat(257);
    assert_eq!(files.write("schemes", &many), Err(Errno::INVAL));
    assert_eq!(names(&files, ""), FILES);
}

#[test]
fn debugfs_shows_values_as_the_kernel() {
    let (files, targets) = with_two_targets();
    let (first, second) = (targets[0].pid(), targets[1].pid());
    let cases: [(&str, String, String); 12] = [
        ("attrs", "1 2 3 4 5".to_owned(), "1 2 3 4 5\n".to_owned()),
        ("attrs", " 1\t2 3\n4 5\n\n".to_owned(), "1 2 3 4 5\n".to_owned()),
        (
            "init_regions",
            "1 4096 8192\n0 1 2\n".to_owned(),
            "1 4096 8192\n0 1 2\n".to_owned(),
        ),
        ("init_regions", "\n".to_owned(), String::new()),
        (
            "schemes",
            "1 2 3 4 5 6 4 0 0 0 1 2 3 1 100 3 2 1".to_owned(),
            "1 2 3 4 5 6 4 0 0 0 1 2 3 1 100 3 2 1 0 0 0 0 0\n".to_owned(),
        ),
        (
            "schemes",
            "1 2\n3 4 5 6 3 0 0 0 1 2 3 1 100 3 2 1\n".to_owned(),
            "1 2 3 4 5 6 3 0 0 0 1 2 3 1 100 3 2 1 0 0 0 0 0\n".to_owned(),
        ),
        (
            "schemes",
            "4096 18446744073709551615 0 0 5 4294967295 2\n".to_owned(),
            "4096 18446744073709551615 0 0 5 4294967295 2 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n".to_owned(),
        ),
        ("schemes", "\n".to_owned(), String::new()),
        (
            "target_ids",
            format!("{second} {first}\n"),
            format!("{second} {first}\n"),
        ),
        // The kernel's selftests expect the pids before the first word that is not a number.
        (
            "target_ids",
            format!("{first} abc {second}"),
            format!("{first}\n"),
        ),
        ("target_ids", "abc 2 3".to_owned(), "\n".to_owned()),
        ("target_ids", "\n".to_owned(), "\n".to_owned()),
    ];
    for (name, written, shown) in cases {
        files.set(name, &written);
        assert_eq!(files.read(name), Ok(shown), "{written:?} to {name}");
    }
}

#[test]
fn new_targets_clear_initial_regions() {
    let (files, targets) = with_two_targets();
    files.set("init_regions", "0 4096 8192");
    files.set("target_ids", targets[1].pid());
    assert_eq!(files.read("init_regions"), Ok(String::new()));
    assert_eq!(
        files.write("init_regions", "1 4096 8192"),
        Err(Errno::INVAL),
        "there is only one target"
    );
}

#[test]
fn write_at_an_offset_is_rejected() {
    let files = files();
    let ino = files.0.tree().find("attrs").unwrap();
    let write = Write {
        offset: 4,
        ..Write::new(b"1 2 3 4 5")
    };
    assert_eq!(files.0.write(ino, write), Err(Errno::INVAL));
    assert_eq!(files.0.write(ino, Write::new(b"")), Ok(0));
    assert_eq!(files.read("attrs"), Ok(ATTRS.to_owned()));
}

#[test]
fn contexts_are_created_and_removed() {
    let files = files();
    assert_eq!(
        files.write("monitor_on", "on"),
        Err(Errno::INVAL),
        "without targets"
    );
    files.set("mk_contexts", "foo");
    assert_eq!(files.write("mk_contexts", "foo"), Err(Errno::EXIST));
    files.set("foo/attrs", "1 2 3 4 5");
    assert_eq!(
        files.read("attrs"),
        Ok(ATTRS.to_owned()),
        "the first context has attributes of its own"
    );
    files.set("rm_contexts", "foo\n");
    assert_eq!(files.read("foo/attrs"), Err(Errno::NOENT));
    files.set("mk_contexts", "foo");
    assert_eq!(files.read("foo/attrs"), Ok(ATTRS.to_owned()), "a new context");
}

#[test]
fn contexts_run_together_and_reject_writes() {
    let (files, targets) = with_two_targets();
    files.set("mk_contexts", "foo");
    assert_eq!(
        files.write("monitor_on", "on"),
        Err(Errno::INVAL),
        "a context has no targets"
    );
    assert_eq!(
        files.read("kdamond_pid"),
        Ok("none\n".to_owned()),
        "no context was started"
    );
    files.set("foo/target_ids", targets[1].pid());
    files.set("foo/init_regions", "0 4096 1048576");
    files.set("foo/schemes", "0 4611686018427387904 0 4294967295 0 4294967295 5");
    files.set("monitor_on", "on\n");
    assert_eq!(files.read("monitor_on"), Ok("on\n".to_owned()));
    for (context, thread) in [("", "kdamond.0"), ("foo/", "kdamond.1")] {
        let tid = files.number(&format!("{context}kdamond_pid"));
        let comm = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap();
        assert_eq!(comm.trim(), thread);
    }
    for (name, text) in [
        ("attrs", "1 2 3 4 5"),
        ("foo/target_ids", "\n"),
        ("foo/init_regions", "\n"),
        ("schemes", "\n"),
        ("monitor_on", "on"),
        ("mk_contexts", "bar"),
        ("rm_contexts", "foo"),
    ] {
        assert_eq!(files.write(name, text), Err(Errno::BUSY), "{name}");
    }
    common::wait_until("the scheme has tried something", || nr_tried(&files) > 0);
    files.set("monitor_on", "off");
    assert_eq!(files.read("foo/kdamond_pid"), Ok("none\n".to_owned()));
    assert!(nr_tried(&files) > 0, "statistics survive the end");
    assert_eq!(
        files.read("foo/target_ids"),
        Ok("\n".to_owned()),
        "targets are cleared"
    );
    assert_eq!(files.write("monitor_on", "off"), Err(Errno::PERM));
}

fn nr_tried(files: &Files) -> u64 {
    let schemes = files.read("foo/schemes").unwrap();
    schemes.split_ascii_whitespace().nth(18).unwrap().parse().unwrap()
}

#[test]
fn monitoring_stops_when_targets_are_gone() {
    let files = files();
    let mut target = ChildProcess::sleeping();
    files.set("target_ids", target.pid());
    files.set("monitor_on", "on");
    target.kill();
    common::wait_until("monitoring stops", || {
        files.read("monitor_on").unwrap() == "off\n"
    });
    assert_eq!(
        files.write("monitor_on", "on"),
        Err(Errno::INVAL),
        "the target is gone"
    );
    assert_eq!(files.write("monitor_on", "off"), Err(Errno::PERM));
}

#[test]
fn one_layout_runs_at_a_time() {
    let engine = engine();
    let (debugfs, target) = (
        Files::debugfs(std::sync::Arc::clone(&engine)),
        ChildProcess::sleeping(),
    );
    let sysfs = Files::staged_with(engine, target.pid());
    debugfs.set("target_ids", target.pid());
    sysfs.command("on").unwrap();
    assert_eq!(debugfs.write("monitor_on", "on"), Err(Errno::BUSY));
    sysfs.command("off").unwrap();
    debugfs.set("monitor_on", "on");
    assert_eq!(sysfs.command("on"), Err(Errno::BUSY));
    debugfs.set("monitor_on", "off");
    sysfs.command("on").unwrap();
    sysfs.command("off").unwrap();
}
