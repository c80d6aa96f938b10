//! Discovery of targets, on a fake `/proc`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use thermo_engine::TargetId;
use thermo_targets::{Changes, Discovery, TargetSpec};

const KTHREAD: u64 = 0x0020_0000;

/// A process in the fake `/proc`.
#[derive(Clone, Copy)]
struct FakeProcess {
    pid: u32,
    ppid: u32,
    comm: &'static str,
    state: char,
    flags: u64,
    starttime: u64,
    code: u64,
    threads: u32,
}

const REDIS: FakeProcess = FakeProcess {
    pid: 0,
    ppid: 1,
    comm: "redis-server",
    state: 'S',
    flags: 0,
    starttime: 1,
    code: 0x40_0000,
    threads: 1,
};

struct Machine(tempfile::TempDir);

impl Machine {
    fn new(processes: &[FakeProcess]) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        processes.iter().for_each(|fake| machine.put(*fake));
        machine
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, process: FakeProcess) {
        let FakeProcess {
            pid,
            ppid,
            comm,
            state,
            flags,
            starttime,
            code,
            threads,
        } = process;
        let dir = self.root().join(format!("proc/{pid}"));
        fs::create_dir_all(dir.join(format!("task/{pid}"))).unwrap();
        let head = format!(
            "{pid} ({comm}) {state} {ppid} 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 {threads} 0 {starttime} 0 0 0"
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

fn process(pid: u32, ppid: u32) -> FakeProcess {
    FakeProcess { pid, ppid, ..REDIS }
}

fn pids(discovery: &Discovery) -> Vec<u32> {
    discovery
        .processes()
        .values()
        .map(|process| process.pid)
        .collect()
}

/// Looks at all targets, and updates them.
fn update(discovery: &mut Discovery) -> Changes {
    let all: Vec<TargetId> = discovery.processes().keys().copied().collect();
    let mut sum = Changes::default();
    let mut add = |changes: Changes| {
        sum.appeared.extend(changes.appeared);
        sum.forked.extend(changes.forked);
        sum.vanished.extend(changes.vanished);
    };
    all.into_iter().for_each(|id| add(discovery.look_at(id)));
    add(discovery.update(&BTreeSet::new()).unwrap());
    sum
}

fn is_active(discovery: &Discovery) -> bool {
    !discovery.processes().is_empty() || discovery.can_grow()
}

#[test]
fn descendants_stay_targets_when_their_parent_ends() {
    let machine = Machine::new(&[process(5, 1), process(7, 5), process(8, 7), process(9, 1)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_command(5)).unwrap();
    let changes = update(&mut discovery);
    assert_eq!(pids(&discovery), [5, 7, 8]);
    assert_eq!(
        changes.forked,
        [TargetId(1), TargetId(2)],
        "no target forked the named process"
    );

    machine.end(5);
    machine.put(process(10, 8));
    let changes = update(&mut discovery);
    assert_eq!(
        (changes.vanished, changes.appeared),
        (vec![TargetId(0)], vec![TargetId(3)])
    );
    assert_eq!(pids(&discovery), [7, 8, 10]);
    [7, 8, 10].into_iter().for_each(|pid| machine.end(pid));
    update(&mut discovery);
    assert!(!is_active(&discovery));
}

#[test]
fn unreadable_process_stays_the_same_target() {
    let machine = Machine::new(&[process(5, 1)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_command(5)).unwrap();
    update(&mut discovery);
    // Fails as if too many files were open.
    let stat = machine.root().join("proc/5/stat");
    fs::remove_file(&stat).unwrap();
    fs::create_dir(&stat).unwrap();
    let changes = update(&mut discovery);
    assert!(changes.vanished.is_empty(), "{changes:?}");
    assert_eq!(pids(&discovery), [5]);
    fs::remove_dir(&stat).unwrap();
    machine.put(process(5, 1));
    let changes = update(&mut discovery);
    assert!(
        changes.vanished.is_empty() && changes.appeared.is_empty(),
        "{changes:?}"
    );
}

#[test]
fn command_in_background_stays_a_target() {
    let own_pid = std::process::id();
    let machine = Machine::new(&[process(own_pid, 1), process(5, own_pid)]);
    let spec = TargetSpec {
        orphans: true,
        ..TargetSpec::for_command(5)
    };
    let mut discovery = Discovery::new(machine.root(), spec).unwrap();
    update(&mut discovery);
    assert_eq!(pids(&discovery), [5]);
    machine.end(5);
    machine.put(process(7, own_pid));
    assert!(is_active(&discovery), "also before an update found it");
    update(&mut discovery);
    assert_eq!(pids(&discovery), [7]);
    machine.end(7);
    update(&mut discovery);
    assert!(!is_active(&discovery));
}

#[test]
fn orphans_of_command_that_ended_early_are_targets() {
    let own_pid = std::process::id();
    let ended = FakeProcess {
        state: 'Z',
        ..process(5, own_pid)
    };
    let spec = TargetSpec {
        orphans: true,
        ..TargetSpec::for_command(5)
    };
    let machine = Machine::new(&[process(own_pid, 1), ended, process(7, own_pid), process(8, 7)]);
    let mut discovery = Discovery::new(machine.root(), spec.clone()).unwrap();
    assert!(is_active(&discovery));
    update(&mut discovery);
    assert_eq!(pids(&discovery), [7, 8]);

    let machine = Machine::new(&[process(own_pid, 1), ended]);
    assert!(
        !is_active(&Discovery::new(machine.root(), spec).unwrap()),
        "the command left no process"
    );
    let named = TargetSpec::for_pids(&[5]);
    assert!(Discovery::new(machine.root(), named).is_err(), "not a command");
}

#[test]
fn only_named_processes_are_targets_without_children() {
    let machine = Machine::new(&[process(5, 1), process(7, 5)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_pids(&[5])).unwrap();
    assert!(is_active(&discovery), "also before the first update");
    update(&mut discovery);
    assert_eq!(pids(&discovery), [5]);
    assert_eq!(update(&mut discovery), Changes::default(), "nothing changed");
}

#[test]
fn reused_pid_is_another_process() {
    let machine = Machine::new(&[process(5, 1)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_pids(&[5])).unwrap();
    update(&mut discovery);
    machine.put(FakeProcess {
        starttime: 2,
        ..process(5, 1)
    });
    let changes = update(&mut discovery);
    assert_eq!((changes.vanished, changes.appeared), (vec![TargetId(0)], vec![]));
    assert!(!is_active(&discovery), "the named process has ended");
}

#[test]
fn exec_makes_a_new_target() {
    let machine = Machine::new(&[process(5, 1)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_pids(&[5])).unwrap();
    update(&mut discovery);
    machine.put(FakeProcess {
        code: 0,
        ..process(5, 1)
    });
    assert_eq!(
        update(&mut discovery),
        Changes::default(),
        "the new program is still being loaded"
    );
    machine.put(FakeProcess {
        code: 0x80_0000,
        comm: "cc1",
        ..process(5, 1)
    });
    let changes = update(&mut discovery);
    assert_eq!(
        (changes.vanished, changes.appeared),
        (vec![TargetId(0)], vec![TargetId(1)])
    );
}

#[test]
fn process_without_first_thread_stays_a_target() {
    let machine = Machine::new(&[process(5, 1)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_pids(&[5])).unwrap();
    machine.put(FakeProcess {
        threads: 3,
        state: 'Z',
        ..process(5, 1)
    });
    assert!(
        machine
            .refusal(TargetSpec::for_pids(&[5]))
            .contains("process 5 (redis-server) continues without its first thread")
    );
    update(&mut discovery);
    assert_eq!(pids(&discovery), [5]);
    machine.put(FakeProcess {
        state: 'Z',
        ..process(5, 1)
    });
    update(&mut discovery);
    assert!(!is_active(&discovery));
}

#[test]
fn process_that_leaves_the_group_vanishes() {
    let machine = Machine::new(&[process(5, 1), process(7, 1), process(9, 1)]);
    machine.group("a", "5\n");
    machine.group("a/b", "7\n");
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_cgroup("/a")).unwrap();
    update(&mut discovery);
    assert_eq!(pids(&discovery), [5, 7]);
    machine.group("a", "9\n");
    let changes = update(&mut discovery);
    assert_eq!(changes.vanished, [TargetId(0)]);
    assert_eq!(pids(&discovery), [7, 9]);
    machine.group("a", "");
    machine.group("a/b", "");
    update(&mut discovery);
    assert!(
        discovery.processes().is_empty() && is_active(&discovery),
        "other processes may join"
    );
    fs::remove_dir_all(machine.root().join("cg")).unwrap();
    assert!(!is_active(&discovery));
}

#[test]
fn removed_group_is_waited_for() {
    let machine = Machine::new(&[process(5, 1), process(9, 1)]);
    machine.group("a", "5\n");
    let spec = TargetSpec {
        waits_for_cgroup: true,
        selected: false,
        ..TargetSpec::for_cgroup("/a")
    };
    let mut discovery = Discovery::new(machine.root(), spec).unwrap();
    update(&mut discovery);
    fs::remove_dir_all(machine.root().join("cg")).unwrap();
    update(&mut discovery);
    assert!(discovery.processes().is_empty() && is_active(&discovery));
    machine.group("a", "9\n");
    update(&mut discovery);
    assert_eq!(pids(&discovery), [9]);
}

#[test]
fn system_excludes_kernel_threads_and_session_programs() {
    let machine = Machine::new(&[
        process(1, 0),
        FakeProcess {
            flags: KTHREAD,
            comm: "kthreadd",
            ..process(2, 0)
        },
        FakeProcess {
            comm: "sshd",
            ..process(3, 1)
        },
        FakeProcess {
            comm: "thermo",
            ..process(4, 1)
        },
        FakeProcess {
            comm: "java",
            ..process(6, 1)
        },
        FakeProcess {
            state: 'Z',
            ..process(8, 1)
        },
        process(5, 1),
        process(std::process::id(), 1),
    ]);
    let spec = TargetSpec {
        exclude: vec!["java".to_owned()],
        ..TargetSpec::for_system()
    };
    let mut discovery = Discovery::new(machine.root(), spec).unwrap();
    update(&mut discovery);
    assert_eq!(pids(&discovery), [5]);
}

#[test]
fn invalid_targets_are_refused_with_a_way_out() {
    let kthread = FakeProcess {
        flags: KTHREAD,
        comm: "kswapd0",
        ..process(2, 0)
    };
    let machine = Machine::new(&[process(1, 0), kthread, process(7, 1)]);
    let thread = "Name:\tx\nTgid:\t6\nUid:\t0\t0\t0\t0\nCapEff:\t0\n";
    fs::write(machine.root().join("proc/7/status"), thread).unwrap();
    let refusal = |pid: u32| machine.refusal(TargetSpec::for_pids(&[pid]));
    assert!(refusal(5).contains("no process 5"));
    assert!(refusal(2).contains("(kswapd0) is a kernel thread"));
    assert!(refusal(1).contains("first process"));
    assert!(refusal(7).contains("use --pid 6"));
    assert!(refusal(std::process::id()).contains("this program itself"));
    assert!(
        machine
            .refusal(TargetSpec::default())
            .contains("no target is named")
    );
    machine.group("a", "");
    assert!(machine.refusal(TargetSpec::for_cgroup("/no")).contains("\"/no\""));
}

#[test]
fn selection_names_processes_by_number_and_start() {
    let process = |pid, starttime| FakeProcess {
        pid,
        starttime,
        ..REDIS
    };
    let machine = Machine::new(&[process(7, 70), process(8, 80)]);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_selection()).unwrap();
    assert!(update(&mut discovery).appeared.is_empty() && discovery.can_grow());
    discovery.select([(7, 70), (8, 1), (9, 90)].into());
    let changes = update(&mut discovery);
    assert_eq!(
        changes.appeared.len(),
        1,
        "8 is another process by now, 9 has ended"
    );
    let pid = |id: &TargetId| discovery.processes()[id].pid;
    assert_eq!(pid(&changes.appeared[0]), 7);
    discovery.select([(8, 80)].into());
    let changes = update(&mut discovery);
    assert_eq!((changes.appeared.len(), changes.vanished.len()), (1, 1));
}

impl Machine {
    /// The number that was given out last.
    fn set_last_pid(&self, pid: u32) {
        fs::write(self.root().join("proc/loadavg"), format!("0 0 0 1/9 {pid}\n")).unwrap();
    }

    fn put_in_group(&self, process: FakeProcess, group: &str) {
        self.put(process);
        let path = self.root().join(format!("proc/{}/cgroup", process.pid));
        fs::write(path, format!("0::{group}\n")).unwrap();
    }
}

/// Larger than any number that the kernel gives out, so that this process has none of the numbers above.
const LARGE: u32 = 5_000_000;

/// So many that all lists are not read again while the test runs.
fn many() -> Vec<FakeProcess> {
    (LARGE..LARGE + 400).map(|pid| process(pid, 1)).collect()
}

#[test]
fn new_process_of_a_group_is_found_before_the_group_is_read_again() {
    let machine = Machine::new(&many());
    machine.set_last_pid(LARGE + 399);
    machine.group(
        "a",
        &many()
            .iter()
            .map(|one| format!("{}\n", one.pid))
            .collect::<String>(),
    );
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_cgroup("/a")).unwrap();
    assert_eq!(update(&mut discovery).appeared.len(), 400);
    machine.put_in_group(process(LARGE + 900, 1), "/a/b");
    machine.put_in_group(process(LARGE + 901, 1), "/ab");
    machine.set_last_pid(LARGE + 902);
    let changes = update(&mut discovery);
    assert_eq!((changes.appeared.len(), changes.vanished.len()), (1, 0));
    assert_eq!(pids(&discovery).last(), Some(&(LARGE + 900)));
    // The last becomes visible only now.
    machine.put_in_group(process(LARGE + 902, 1), "/a");
    update(&mut discovery);
    assert_eq!(pids(&discovery).last(), Some(&(LARGE + 902)));
}

#[test]
fn new_children_are_found_by_their_parent_and_threads_are_none() {
    let machine = Machine::new(&many());
    machine.put(process(5, 1));
    machine.set_last_pid(LARGE + 399);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_command(5)).unwrap();
    update(&mut discovery);
    assert_eq!(pids(&discovery), [5]);
    // A thread of 7 has the parent of 7.
    machine.put(process(7, 5));
    machine.put(process(8, 5));
    let thread = "Name:\tx\nTgid:\t7\nUid:\t0\t0\t0\t0\nCapEff:\t0\n";
    fs::write(machine.root().join("proc/8/status"), thread).unwrap();
    machine.put(process(9, 7));
    machine.put(process(10, LARGE));
    // The numbers began anew.
    machine.set_last_pid(10);
    let changes = update(&mut discovery);
    assert_eq!(pids(&discovery), [5, 7, 9]);
    assert_eq!(changes.forked, changes.appeared);
}

#[test]
fn new_session_program_that_executes_another_program_becomes_a_target() {
    let machine = Machine::new(&many());
    machine.set_last_pid(LARGE + 399);
    let mut discovery = Discovery::new(machine.root(), TargetSpec::for_system()).unwrap();
    assert_eq!(update(&mut discovery).appeared.len(), 400);
    let shell = FakeProcess {
        comm: "sshd",
        ..process(LARGE + 600, 1)
    };
    machine.put(shell);
    machine.set_last_pid(LARGE + 600);
    assert_eq!(update(&mut discovery).appeared.len(), 0);
    machine.put(process(LARGE + 600, 1));
    assert_eq!(update(&mut discovery).appeared.len(), 1);
}
