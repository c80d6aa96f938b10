#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
use std::fs;
use std::os::unix::fs::symlink;

use super::*;

struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(machine.0.path().join("proc")).unwrap();
        machine.last_pid(100);
        machine
    }

    fn last_pid(&self, pid: u32) {
        fs::write(
            self.0.path().join("proc/loadavg"),
            format!("0.1 0.1 0.1 1/99 {pid}\n"),
        )
        .unwrap();
    }

    fn process(&self, pid: u32, command: &str, starttime: u64, code: u64) {
        let folder = self.0.path().join(format!("proc/{pid}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let zeros = "0 ".repeat(3);
        let stat = format!(
            "{pid} ({command}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {starttime} 1 1 1 {code} 1 {code} {zeros}"
        );
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("cgroup"), "0::/\n").unwrap();
        fs::write(
            folder.join("status"),
            format!("Name:\tx\nTgid:\t{pid}\nUid:\t5\t5\t5\t5\nCapEff:\t0\nVmRSS:\t9 kB\nRssAnon:\t4 kB\n"),
        )
        .unwrap();
        symlink(format!("/bin/{command}"), folder.join("exe")).unwrap();
    }

    fn end(&self, pid: u32) {
        fs::remove_dir_all(self.0.path().join(format!("proc/{pid}"))).unwrap();
    }
}

fn config() -> Config {
    let text = "[[policy]]\nname = \"a\"\nmatch = { command = \"a*\" }\n\
                [[policy]]\nname = \"rest\"\nmatch = { user = \"5\" }\n";
    Config::parse(text, Path::new("/")).unwrap()
}

fn names(table: &ProcessTable, policy: usize) -> Vec<(u32, String)> {
    let processes = table.of_policy(policy).into_iter();
    processes.map(|process| (process.pid, process.target)).collect()
}

#[test]
fn first_policy_that_matches_has_the_process() {
    let machine = Machine::new();
    machine.process(70, "apache", 1, 4096);
    machine.process(71, "bind", 1, 4096);
    let mut table = ProcessTable::new(machine.0.path(), PodNames::default());
    assert!(table.update(&config(), Nanos::secs(1)).unwrap());
    assert_eq!(names(&table, 0), [(70, "apache".to_owned())]);
    assert_eq!(names(&table, 1), [(71, "bind".to_owned())]);
    assert!(
        !table.update(&config(), Nanos::secs(2)).unwrap(),
        "nothing changed"
    );
    machine.end(70);
    assert!(table.update(&config(), Nanos::secs(3)).unwrap());
    assert_eq!(names(&table, 0), []);
}

#[test]
fn reused_number_is_another_process() {
    let machine = Machine::new();
    machine.process(70, "apache", 1, 4096);
    let mut table = ProcessTable::new(machine.0.path(), PodNames::default());
    table.update(&config(), Nanos::ZERO).unwrap();
    machine.process(70, "bind", 9, 4096);
    machine.last_pid(75);
    assert!(table.update(&config(), Nanos::secs(60)).unwrap());
    assert_eq!(
        (names(&table, 0), names(&table, 1)),
        (vec![], vec![(70, "bind".to_owned())])
    );
}

#[test]
fn exec_is_seen_at_once_while_young_and_in_turn_later() {
    let machine = Machine::new();
    machine.process(70, "sh", 1, 4096);
    let mut table = ProcessTable::new(machine.0.path(), PodNames::default());
    table.update(&config(), Nanos::ZERO).unwrap();
    machine.process(70, "apache", 1, 8192);
    assert!(table.update(&config(), Nanos::secs(1)).unwrap());
    assert_eq!(names(&table, 0).len(), 1);
    machine.process(70, "bind", 1, 12_288);
    let changes = (0..TURN_UPDATES as u64)
        .filter(|nth| table.update(&config(), Nanos::secs(100 + nth)).unwrap())
        .count();
    assert_eq!((changes, names(&table, 1).len()), (1, 1));
}

const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

/// A policy that protects a namespace, and one that takes the rest.
fn pods_config() -> Config {
    let text = "[kubernetes]\nkubelet = \"http://127.0.0.1\"\n\
                [[policy]]\nname = \"shop\"\nmatch = { namespace = \"shop\" }\n\
                target_name = \"{namespace}/{workload}/{container_name}\"\n\
                [[policy]]\nname = \"rest\"\nmatch = { cgroup = \"/kubepods/**\" }\n";
    Config::parse(text, Path::new("/")).unwrap()
}

fn put_in_pod(machine: &Machine, pid: u32, uid: &str) {
    let path = format!("0::/kubepods/pod{uid}/{}\n", "ab".repeat(32));
    fs::write(machine.0.path().join(format!("proc/{pid}/cgroup")), path).unwrap();
}

fn shop_pod() -> Pod {
    Pod {
        uids: vec![UID.to_owned()],
        namespace: "shop".to_owned(),
        name: "web-0".to_owned(),
        containers: [("ab".repeat(32), "server".to_owned())].into(),
        ..Pod::default()
    }
}

#[test]
fn pod_has_no_policy_until_its_names_are_known() {
    let machine = Machine::new();
    let other = UID.replace('0', "9");
    for (pid, uid) in [(70, UID), (71, other.as_str())] {
        machine.process(pid, "apache", 1, 4096);
        put_in_pod(&machine, pid, uid);
    }
    let (mut table, config) = (
        ProcessTable::new(machine.0.path(), PodNames::new(true)),
        pods_config(),
    );
    table.update(&config, Nanos::ZERO).unwrap();
    assert_eq!(
        (names(&table, 0), names(&table, 1)),
        (vec![], vec![]),
        "not known yet"
    );
    assert!(table.pods().is_due(Nanos::ZERO));
    let elsewhere = Pod {
        uids: vec![other],
        namespace: "default".to_owned(),
        ..shop_pod()
    };
    assert!(table.set_pods(vec![shop_pod(), elsewhere], &config, Nanos::ZERO));
    assert_eq!(names(&table, 0), [(70, "shop/web-0/server".to_owned())]);
    assert_eq!(names(&table, 1), [(71, "abababababab".to_owned())]);
    assert!(
        !table.set_pods(vec![shop_pod()], &config, Nanos::ZERO),
        "names are kept"
    );
    assert_eq!(names(&table, 1).len(), 1);
    machine.process(72, "nginx", 2, 4096);
    put_in_pod(&machine, 72, UID);
    machine.last_pid(101);
    assert!(table.update(&config, Nanos::secs(60)).unwrap());
    assert_eq!(
        names(&table, 0).len(),
        2,
        "a further process of a known pod needs no list"
    );
    assert!(!table.pods().is_due(Nanos::secs(60)));
}

#[test]
fn process_outside_of_pods_is_decided_at_once() {
    let machine = Machine::new();
    machine.process(70, "apache", 1, 4096);
    fs::write(machine.0.path().join("proc/70/cgroup"), "0::/kubepods/x\n").unwrap();
    let mut table = ProcessTable::new(machine.0.path(), PodNames::new(true));
    assert!(table.update(&pods_config(), Nanos::ZERO).unwrap());
    assert_eq!(names(&table, 1).len(), 1);
    assert!(!table.pods().is_due(Nanos::ZERO));
}
