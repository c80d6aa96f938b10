//! The agent on real processes, asked through its socket by the verbs of `thermo agent`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{
    Guard, has_tracker, json, lab_workload, run, spawn_command_quiet, stderr, wait_until, workload,
};
use serde_json::Value;
use thermo_actions::below_swap_floor;
use thermo_agent::guard::Bounds;
use thermo_fleet::RowKind;
use thermo_kernel::meminfo;

/// An agent with one policy, which matches processes with the variable `THERMO_TEST` of this test.
struct Agent {
    folder: tempfile::TempDir,
    mark: String,
    process: Guard,
}

impl Agent {
    /// Starts an agent. `policy` are further keys of its policy.
    fn start(policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        let mark = format!("{name}-{}", std::process::id());
        configure(folder.path(), &mark, policy);
        let process = spawn_agent(folder.path());
        let agent = Self {
            folder,
            mark,
            process,
        };
        assert!(wait_until(|| agent.is_ready()), "the agent does not become ready");
        agent
    }

    fn dir(&self) -> &Path {
        self.folder.path()
    }

    fn is_ready(&self) -> bool {
        run(self.dir(), &["agent", "status", "--agent", "a.sock"])
            .status
            .success()
    }

    /// Ends the agent with `signal`, and starts another in its place.
    fn restart(&mut self, signal: &str) {
        let pid = self.process.0.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(status.success());
        self.process.0.wait().unwrap();
        self.process = spawn_agent(self.dir());
        assert!(
            wait_until(|| self.is_ready()),
            "the agent does not become ready again"
        );
    }

    /// A process that the policy matches.
    fn spawn(&self, mut command: Command) -> Guard {
        command.env("THERMO_TEST", &self.mark);
        spawn_command_quiet(command)
    }

    fn ask(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["agent"];
        all.extend(arguments);
        all.extend(["--agent", "a.sock", "--json"]);
        json(self.dir(), &all)
    }

    /// The only target; null if there is none.
    fn target(&self) -> Value {
        self.ask(&["status"])["targets"][0].clone()
    }

    fn policy(&self) -> Value {
        self.ask(&["status"])["policies"][0].clone()
    }

    /// The row of the ledger.
    fn ledger(&self) -> Value {
        self.ask(&["ledger"])["rows"][0].clone()
    }

    fn decisions(&self, kind: &str) -> Vec<String> {
        let decisions = self.ask(&["why"]);
        let all = decisions["decisions"].as_array().unwrap().iter();
        let of_kind = all.filter(|decision| decision["kind"] == kind);
        of_kind
            .map(|decision| decision["why"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn configure(dir: &Path, mark: &str, policy: &str) {
    let text = format!(
        "state_dir = \"{0}/state\"\n[http]\nsocket = \"{0}/a.sock\"\n[history]\nevery = \"1s\"\n\
         [[policy]]\nname = \"test\"\nmatch = {{ env = \"THERMO_TEST={mark}\" }}\ntarget_name = \"it\"\n{policy}",
        dir.display()
    );
    fs::write(dir.join("agent.toml"), text).unwrap();
}

fn spawn_agent(dir: &Path) -> Guard {
    common::spawn_quiet(dir, &["agent", "--config", "agent.toml"])
}

/// Bytes of `sums` under `name`.
fn bytes(sums: &Value, name: &str) -> u64 {
    let found = sums
        .as_array()
        .and_then(|sums| sums.iter().find(|sum| sum["name"] == name));
    found.map_or(0, |sum| sum["bytes"].as_u64().unwrap())
}

#[test]
fn agent_watches_explains_and_remembers() {
    let Ok(folder) = tempfile::tempdir() else { return };
    if !has_tracker(folder.path()) {
        return;
    }
    let mut agent = Agent::start("preset = \"reclaim\"\nmin_age = \"2s\"\n");
    let config = workload(agent.dir(), 300_000).unwrap();
    let target = agent.spawn(lab_workload(agent.dir(), &["-q", config.to_str().unwrap()]));
    // 32 MiB are not accessed any more.
    let idle = |target: &Value| -> u64 {
        let ages = target["ages"].as_array().cloned().unwrap_or_default();
        let old = ages.iter().filter(|row| row["min_s"].as_u64() >= Some(2));
        old.map(|row| row["bytes"].as_u64().unwrap()).sum()
    };
    assert!(
        wait_until(|| idle(&agent.target()) >= 30 << 20),
        "{}",
        agent.target()
    );
    let seen = agent.target();
    assert_eq!((&seen["name"], &seen["mode"]), (&"it".into(), &"observe".into()));
    assert_eq!(seen["pids"][0], target.0.id());

    let explained = agent.ask(&["explain", &target.0.id().to_string()]);
    assert_eq!(explained["policy"], "test", "{explained}");
    let nobody = run(agent.dir(), &["agent", "explain", "1", "--agent", "a.sock"]);
    assert!(String::from_utf8_lossy(&nobody.stdout).contains("No policy has process 1"));

    agent.ask(&["mode", "test", "dry-run"]);
    // Without swap, the dry run acts on nothing, as the run would, and says why.
    let memory = meminfo::read(Path::new("/")).unwrap();
    let floor = Bounds::default().min_free_swap;
    let (sums, name) = if below_swap_floor(memory.swap_free, memory.swap_total, floor) {
        ("skipped_bytes", "swap_floor")
    } else {
        ("would_act_bytes", "pageout")
    };
    assert!(
        wait_until(|| bytes(&agent.ledger()[sums], name) >= 30 << 20),
        "{name}: {}",
        agent.ledger()
    );
    assert_eq!(bytes(&agent.ledger()["acted_bytes"], "pageout"), 0);

    agent.ask(&["reload"]);
    assert_eq!(
        agent.policy()["mode"],
        "observe",
        "the configuration counts again"
    );

    // The ledger survives an orderly end.
    let watched = |agent: &Agent| agent.ledger()["watched_s"].as_f64().unwrap_or(0.0);
    let before = watched(&agent);
    agent.restart("-TERM");
    assert!(wait_until(|| watched(&agent) > before), "{before}");
    // After a SIGKILL it goes on from its last minute, the history from its last batch, and nothing is left
    // switched on.
    agent.restart("-KILL");
    assert!(wait_until(|| watched(&agent) >= before), "{before}");
    let segments = fs::read_dir(agent.dir().join("state/history/test"))
        .unwrap()
        .count();
    assert!(segments >= 1);
    let leftovers = run(agent.dir(), &["doctor", "--leftovers"]);
    assert!(leftovers.status.success(), "{}", stderr(&leftovers));
}

/// The rows of all files of the fleet that the agent has finished: of its target, and of itself.
fn exported(dir: &Path) -> Vec<thermo_fleet::Row> {
    let mut rows = Vec::new();
    let mut folders = vec![dir.join("state/export")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "parquet") {
                rows.extend(thermo_fleet::read(fs::read(path).unwrap()).unwrap().1);
            }
        }
    }
    rows
}

#[test]
fn agent_exports_rows_once() {
    let Ok(folder) = tempfile::tempdir() else { return };
    if !has_tracker(folder.path()) {
        return;
    }
    let mut agent = Agent::start("[export]\nevery = \"1s\"\nwindow = \"2s\"\n");
    let config = workload(agent.dir(), 300_000).unwrap();
    let target = agent.spawn(lab_workload(agent.dir(), &["-q", config.to_str().unwrap()]));
    // 32 MiB are not accessed any more; those of two seconds and more are in the buckets from 3 on.
    let is_idle = |row: &thermo_fleet::Row| {
        row.row == RowKind::Target && row.idle_bytes.iter().skip(3).sum::<u64>() >= 30 << 20
    };
    let dir = agent.dir().to_owned();
    let has_idle = || exported(&dir).iter().any(is_idle);
    assert!(wait_until(has_idle), "{:?}", exported(agent.dir()));
    let status = agent.ask(&["status"]);
    assert_eq!(status["status"]["export"]["dropped_files"], 0, "{status}");
    agent.restart("-KILL");
    let rows = exported(agent.dir()).len();
    assert!(
        wait_until(|| exported(&dir).len() > rows + 4),
        "no rows after the restart"
    );
    agent.restart("-TERM");
    drop(target);

    let mut rows = exported(agent.dir());
    rows.retain(|row| row.row == RowKind::Agent);
    rows.sort_by_key(|row| row.time_ms);
    for pair in rows.windows(2) {
        // Times are rounded down to the second.
        let passed = pair[1].time_ms - pair[0].time_ms;
        assert!(passed > 0 && pair[1].interval_ms <= passed + 1000, "{pair:?}");
    }
    let cpu_us: u64 = rows
        .iter()
        .map(|row| row.watching_cpu_us + row.acting_cpu_us)
        .sum();
    assert!(
        cpu_us > 0 && rows.iter().all(|row| row.resident_bytes > 1 << 20),
        "{rows:?}"
    );
}

#[test]
fn mistake_in_the_configuration_changes_nothing() {
    let agent = Agent::start("");
    configure(agent.dir(), &agent.mark, "mode = \"fast\"\n");
    let check = run(agent.dir(), &["agent", "check", "agent.toml"]);
    assert_eq!(check.status.code(), Some(2));
    assert!(
        stderr(&check).contains("agent.toml:10:8: \"fast\" is not a mode"),
        "{}",
        stderr(&check)
    );
    let reload = run(agent.dir(), &["agent", "reload", "--agent", "a.sock"]);
    assert_eq!(reload.status.code(), Some(2));
    assert!(stderr(&reload).contains("10:8"), "{}", stderr(&reload));
    assert_eq!(agent.policy()["mode"], "observe");
    // A reload keeps a pause, and refuses what only a restart can change.
    agent.ask(&["pause", "test"]);
    configure(agent.dir(), &agent.mark, "guard = { max_stall = \"7%\" }\n");
    agent.ask(&["reload"]);
    assert_eq!(agent.policy()["paused"], true);
    let text = fs::read_to_string(agent.dir().join("agent.toml")).unwrap();
    fs::write(agent.dir().join("agent.toml"), text.replace("a.sock", "b.sock")).unwrap();
    let reload = run(agent.dir(), &["agent", "reload", "--agent", "a.sock"]);
    assert!(
        stderr(&reload).contains("[http] changed, which only a restart"),
        "{}",
        stderr(&reload)
    );
    let unknown = run(agent.dir(), &["agent", "pause", "other", "--agent", "a.sock"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("there is no policy \"other\""));
    let gone = run(agent.dir(), &["agent", "status", "--agent", "none.sock"]);
    assert_eq!(gone.status.code(), Some(2));
}

#[test]
fn new_processes_are_found() {
    let agent = Agent::start("");
    let sleepers: Vec<Guard> = (0..20)
        .map(|_| {
            let mut sleep = Command::new("sleep");
            sleep.arg("600");
            agent.spawn(sleep)
        })
        .collect();
    assert!(
        wait_until(|| agent.policy()["processes"] == 20),
        "{}",
        agent.policy()
    );
    drop(sleepers);
    assert!(
        wait_until(|| agent.policy()["processes"] == 0),
        "{}",
        agent.policy()
    );
}

/// A program that maps a file of 32 MiB and reads it each time it is asked.
const READER: &str = "import mmap,sys
file=open('data','rb'); memory=mmap.mmap(file.fileno(),0,prot=mmap.PROT_READ)
for line in sys.stdin:
    sum(memory[at] for at in range(0,len(memory),4096))
    print('read',flush=True)
";

#[test]
fn target_is_suspended_when_its_memory_comes_back() {
    let Ok(folder) = tempfile::tempdir() else { return };
    if !has_tracker(folder.path()) {
        return;
    }
    let agent = Agent::start(
        "preset = \"reclaim\"\nmin_age = \"2s\"\nmode = \"act\"\n\
         guard = { max_refaults = \"1%/min\", min_free_swap = \"0%\", max_stall = \"100%\", resume_after = \"1h\" }\n",
    );
    fs::write(agent.dir().join("data"), vec![7; 32 << 20]).unwrap();
    let mut python = Command::new("python3");
    python
        .args(["-c", READER])
        .current_dir(agent.dir())
        .env("THERMO_TEST", &agent.mark)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut reader = match python.spawn() {
        Ok(reader) => Guard(reader),
        Err(why) => return eprintln!("SKIP: the target needs python3: {why}"),
    };
    let mut stdin = reader.0.stdin.take().unwrap();
    stdin.write_all(b"read\n").unwrap();
    let acted = || bytes(&agent.ledger()["acted_bytes"], "pageout");
    if !wait_until(|| acted() >= 24 << 20) {
        let refused = bytes(&agent.ledger()["skipped_bytes"], "not_permitted");
        assert!(refused > 0, "{}", agent.ledger());
        return eprintln!("SKIP: memory of other processes cannot be advised here");
    }
    assert!(
        agent.target()["net_saved_bytes"].as_i64().unwrap() > 20 << 20,
        "{}",
        agent.target()
    );
    assert!(!agent.decisions("acted").is_empty());

    stdin.write_all(b"read\n").unwrap();
    assert!(
        wait_until(|| !agent.target()["suspended"].is_null()),
        "{}",
        agent.ledger()
    );
    let policy = agent.policy();
    assert!(policy["suspended"].is_null(), "other targets go on: {policy}");
    assert_eq!(policy["suspended_targets"], 1);
    assert!(agent.target()["resumes_at_ms"].is_u64(), "{}", agent.target());
    let why = agent.decisions("suspended").join("; ");
    assert!(
        why.contains("came back in the last minute") && why.contains("1%/min"),
        "{why}"
    );
    assert!(agent.ledger()["back_1min_bytes"].as_u64().unwrap() >= 1 << 20);
    let held = acted();
    stdin.write_all(b"read\n").unwrap();
    // Ages pass the minimum again, and nothing is done.
    let idle = |agent: &Agent| agent.target()["ages"][3]["bytes"].as_u64().unwrap_or(0);
    assert!(wait_until(|| idle(&agent) >= 24 << 20), "{}", agent.target());
    assert_eq!(acted(), held, "the target is suspended");
    agent.ask(&["resume", "test"]);
    assert!(agent.target()["suspended"].is_null());
    assert!(wait_until(|| acted() > held), "it goes on");
}
