//! Who the targets are, on machines made of text.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::Path;

use thermo_engine::TargetId;
use thermo_targets::{Changes, Discovery, TargetSpec};

const KTHREAD: u64 = 0x0020_0000;

/// A process as `/proc` shows it.
#[derive(Clone, Copy)]
struct Fake {
    pid: u32,
    ppid: u32,
    comm: &'static str,
    state: char,
    flags: u64,
    started: u64,
    code: u64,
    threads: u32,
}

const SOMEONE: Fake = Fake {
    pid: 0,
    ppid: 1,
    comm: "redis-server",
    state: 'S',
    flags: 0,
    started: 1,
    code: 0x40_0000,
    threads: 1,
};

struct Machine(tempfile::TempDir);

impl Machine {
    fn new(processes: &[Fake]) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        processes.iter().for_each(|process| machine.put(*process));
        machine
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, process: Fake) {
        let Fake {
            pid,
            ppid,
            comm,
            state,
            flags,
            started,
            code,
            threads,
        } = process;
        let dir = self.root().join(format!("proc/{pid}"));
        fs::create_dir_all(dir.join(format!("task/{pid}"))).unwrap();
        let head = format!(
            "{pid} ({comm}) {state} {ppid} 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 {threads} 0 {started} 0 0 0"
        );
        fs::write(
            dir.join("stat"),
            format!("{head} {code} {code} {} 0", code + 0x1000),
        )
        .unwrap();
        let status = format!("Name:\t{comm}\nTgid:\t{pid}\nUid:\t0\t0\t0\t0\nCapEff:\t0\n");
        fs::write(dir.join("status"), status).unwrap();
        fs::write(dir.join("maps"), "400000-401000 r-xp 00000000 00:00 0 \n").unwrap();
    }

    fn end(&self, pid: u32) {
        fs::remove_dir_all(self.root().join(format!("proc/{pid}"))).unwrap();
    }

    fn group(&self, name: &str, procs: &str) {
        let dir = self.root().join("cg").join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup.procs"), procs).unwrap();
        fs::write(self.root().join("proc/mounts"), "cgroup2 /cg cgroup2 rw 0 0\n").unwrap();
    }

    fn refusal(&self, spec: TargetSpec) -> String {
        Discovery::new(self.root(), spec).unwrap_err().to_string()
    }
}

fn with(pid: u32, ppid: u32) -> Fake {
    Fake { pid, ppid, ..SOMEONE }
}

fn pids(discovery: &Discovery) -> Vec<u32> {
    discovery.members().values().map(|member| member.pid).collect()
}

fn any_left(discovery: &Discovery) -> bool {
    !discovery.members().is_empty() || discovery.can_grow()
}

#[test]
fn children_and_theirs_are_found_and_stay_when_their_parent_ends() {
    let machine = Machine::new(&[with(5, 1), with(7, 5), with(8, 7), with(9, 1)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::of_command(5)).unwrap();
    let changes = discovery.look().unwrap();
    assert_eq!(pids(&discovery), [5, 7, 8]);
    assert_eq!(
        changes.forked,
        [TargetId(1), TargetId(2)],
        "the named one was not forked by a target"
    );

    machine.end(5);
    machine.put(with(10, 8));
    let changes = discovery.look().unwrap();
    assert_eq!(
        (changes.vanished, changes.appeared),
        (vec![TargetId(0)], vec![TargetId(3)])
    );
    assert_eq!(pids(&discovery), [7, 8, 10]);
    [7, 8, 10].into_iter().for_each(|pid| machine.end(pid));
    discovery.look().unwrap();
    assert!(!any_left(&discovery));
}

#[test]
fn who_cannot_be_read_for_a_moment_stays_the_target_it_was() {
    let machine = Machine::new(&[with(5, 1)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::of_command(5)).unwrap();
    discovery.look().unwrap();
    // As when no more files may be open.
    let stat = machine.root().join("proc/5/stat");
    fs::remove_file(&stat).unwrap();
    fs::create_dir(&stat).unwrap();
    let changes = discovery.look().unwrap();
    assert!(changes.vanished.is_empty(), "{changes:?}");
    assert_eq!(pids(&discovery), [5]);
    fs::remove_dir(&stat).unwrap();
    machine.put(with(5, 1));
    let changes = discovery.look().unwrap();
    assert!(
        changes.vanished.is_empty() && changes.appeared.is_empty(),
        "{changes:?}"
    );
}

#[test]
fn a_command_that_goes_to_the_background_stays_a_target() {
    let ourselves = std::process::id();
    let machine = Machine::new(&[with(ourselves, 1), with(5, ourselves)]);
    let spec = TargetSpec {
        orphans: true,
        ..TargetSpec::of_command(5)
    };
    let mut discovery = Discovery::new(machine.root(), spec).unwrap();
    discovery.look().unwrap();
    assert_eq!(pids(&discovery), [5]);
    machine.end(5);
    machine.put(with(7, ourselves));
    assert!(any_left(&discovery), "also before it was seen");
    discovery.look().unwrap();
    assert_eq!(pids(&discovery), [7]);
    machine.end(7);
    discovery.look().unwrap();
    assert!(!any_left(&discovery));
}

#[test]
fn what_a_command_left_that_ended_before_the_first_look_is_a_target() {
    let ourselves = std::process::id();
    let ended = Fake {
        state: 'Z',
        ..with(5, ourselves)
    };
    let spec = TargetSpec {
        orphans: true,
        ..TargetSpec::of_command(5)
    };
    let machine = Machine::new(&[with(ourselves, 1), ended, with(7, ourselves), with(8, 7)]);
    let mut discovery = Discovery::new(machine.root(), spec.clone()).unwrap();
    assert!(any_left(&discovery));
    discovery.look().unwrap();
    assert_eq!(pids(&discovery), [7, 8]);

    let machine = Machine::new(&[with(ourselves, 1), ended]);
    assert!(
        !any_left(&Discovery::new(machine.root(), spec).unwrap()),
        "it left nothing"
    );
    let named = TargetSpec::of_pids(&[5]);
    assert!(Discovery::new(machine.root(), named).is_err(), "it is no command");
}

#[test]
fn without_children_only_the_named_are_targets() {
    let machine = Machine::new(&[with(5, 1), with(7, 5)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::of_pids(&[5])).unwrap();
    assert!(any_left(&discovery), "before the first look, too");
    discovery.look().unwrap();
    assert_eq!(pids(&discovery), [5]);
    assert_eq!(discovery.look().unwrap(), Changes::default(), "nothing happened");
}

#[test]
fn a_number_used_again_is_another_process() {
    let machine = Machine::new(&[with(5, 1)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::of_pids(&[5])).unwrap();
    discovery.look().unwrap();
    machine.put(Fake {
        started: 2,
        ..with(5, 1)
    });
    let changes = discovery.look().unwrap();
    assert_eq!((changes.vanished, changes.appeared), (vec![TargetId(0)], vec![]));
    assert!(!any_left(&discovery), "it is not the one that was named");
}

#[test]
fn another_program_in_the_same_process_is_a_new_target() {
    let machine = Machine::new(&[with(5, 1)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::of_pids(&[5])).unwrap();
    discovery.look().unwrap();
    machine.put(Fake {
        code: 0,
        ..with(5, 1)
    });
    assert_eq!(
        discovery.look().unwrap(),
        Changes::default(),
        "it is being loaded: wait for what it becomes"
    );
    machine.put(Fake {
        code: 0x80_0000,
        comm: "cc1",
        ..with(5, 1)
    });
    let changes = discovery.look().unwrap();
    assert_eq!(
        (changes.vanished, changes.appeared),
        (vec![TargetId(0)], vec![TargetId(1)])
    );
}

#[test]
fn a_process_whose_first_thread_ended_lives_on() {
    let machine = Machine::new(&[Fake {
        threads: 3,
        state: 'Z',
        ..with(5, 1)
    }]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::of_pids(&[5])).unwrap();
    discovery.look().unwrap();
    assert_eq!(pids(&discovery), [5]);
    machine.put(Fake {
        state: 'Z',
        ..with(5, 1)
    });
    discovery.look().unwrap();
    assert!(!any_left(&discovery));
}

#[test]
fn who_leaves_the_group_is_no_target_any_more() {
    let machine = Machine::new(&[with(5, 1), with(7, 1), with(9, 1)]);
    machine.group("a", "5\n");
    machine.group("a/b", "7\n");
    let mut discovery = Discovery::new(machine.root(), TargetSpec::of_cgroup("/a")).unwrap();
    discovery.look().unwrap();
    assert_eq!(pids(&discovery), [5, 7]);
    machine.group("a", "9\n");
    let changes = discovery.look().unwrap();
    assert_eq!(changes.vanished, [TargetId(0)]);
    assert_eq!(pids(&discovery), [7, 9]);
    machine.group("a", "");
    machine.group("a/b", "");
    discovery.look().unwrap();
    assert!(
        discovery.members().is_empty() && any_left(&discovery),
        "others may come"
    );
    fs::remove_dir_all(machine.root().join("cg")).unwrap();
    assert!(!any_left(&discovery));
}

#[test]
fn the_machine_is_all_but_those_it_hangs_on() {
    let machine = Machine::new(&[
        with(1, 0),
        Fake {
            flags: KTHREAD,
            comm: "kthreadd",
            ..with(2, 0)
        },
        Fake {
            comm: "sshd",
            ..with(3, 1)
        },
        Fake {
            comm: "thermo",
            ..with(4, 1)
        },
        Fake {
            comm: "java",
            ..with(6, 1)
        },
        Fake {
            state: 'Z',
            ..with(8, 1)
        },
        with(5, 1),
        with(std::process::id(), 1),
    ]);
    let spec = TargetSpec {
        exclude: vec!["java".to_owned()],
        ..TargetSpec::of_system()
    };
    let mut discovery = Discovery::new(machine.root(), spec).unwrap();
    discovery.look().unwrap();
    assert_eq!(pids(&discovery), [5]);
}

#[test]
fn what_cannot_be_a_target_is_refused_with_the_way_out() {
    let kthread = Fake {
        flags: KTHREAD,
        comm: "kswapd0",
        ..with(2, 0)
    };
    let machine = Machine::new(&[with(1, 0), kthread, with(7, 1)]);
    let thread = "Name:\tx\nTgid:\t6\nUid:\t0\t0\t0\t0\nCapEff:\t0\n";
    fs::write(machine.root().join("proc/7/status"), thread).unwrap();
    let told = |pid: u32| machine.refusal(TargetSpec::of_pids(&[pid]));
    assert!(told(5).contains("no process 5"));
    assert!(told(2).contains("(kswapd0) is a kernel thread"));
    assert!(told(1).contains("first process"));
    assert!(told(7).contains("use --pid 6"));
    assert!(told(std::process::id()).contains("this program itself"));
    assert!(
        machine
            .refusal(TargetSpec::default())
            .contains("no target is named")
    );
    machine.group("a", "");
    assert!(machine.refusal(TargetSpec::of_cgroup("/no")).contains("\"/no\""));
}
