//! The life cycle daemon, tested through its socket and its client verbs.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;
mod daemon;

use std::fs;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{Guard, PATIENCE, run, stderr, thermo, wait_until};
use daemon::{Daemon, anon_rss, app, is_refused, send, swap, target};
use serde_json::{Value, json};
use thermo_units::Bytes;

const NOBODY: u32 = 65534;

/// Most of the memory of a small program belongs to libraries, which it shares with other processes.
#[test]
fn small_program_that_sleeps_becomes_idle() {
    let sleeper = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let config = app("a", sleeper.0.id(), "idle_after = \"1s\"");
    let daemon = Daemon::start(&format!("poll = \"100ms\"\n{config}"), &[]);
    let status = || daemon.ask(&["status"])["apps"][0].clone();
    assert!(wait_until(|| status()["state"] == "cached"), "{}", status());
    assert_eq!(status()["source"], "idle");
}

#[test]
fn wrong_requests_are_answered_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let sleeper = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let daemon = Daemon::start(&app("a", sleeper.0.id(), ""), &["--silent-after", "300s"]);
    let mut client = daemon.connect();
    for (line, expected) in [
        (&b"nonsense\n"[..], "invalid request"),
        (
            b"{\"verb\":\"set\",\"app\":\"a\",\"state\":\"dead\"}\n",
            "use foreground",
        ),
        (
            b"{\"verb\":\"set\",\"app\":\"b\",\"state\":\"cached\"}\n",
            "no application \"b\"",
        ),
        (b"{\"verb\":\"why\",\"app\":\"b\"}\n", "lifecycle status"),
    ] {
        let answer = send(&mut client, line);
        assert_eq!((&answer["schema"], &answer["ok"]), (&json!(1), &json!(false)));
        assert!(answer["error"].as_str().unwrap().contains(expected), "{answer}");
    }
    // The connection survives mistakes, and two requests in one write get two answers.
    let answer = send(
        &mut client,
        b"{\"verb\":\"set\",\"app\":\"a\",\"state\":\"cached\"}\n{\"verb\":\"status\"}\n",
    );
    assert_eq!(
        (&answer["ok"], &answer["state"]),
        (&json!(true), &json!("cached"))
    );
    // The decision depends on the swap of this machine, but it always has a reason.
    assert!(
        answer["decision"]["reason"]
            .as_str()
            .is_some_and(|reason| !reason.is_empty()),
        "{answer}"
    );
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    assert!(line.contains("\"apps\""), "{line}");
    let answer = send(&mut daemon.connect(), &[b'x'; 5000]);
    assert!(answer["error"].as_str().unwrap().contains("4096"), "{answer}");
    for (verb, expected) in [
        (&["set", "b", "cached"][..], "no application"),
        (&["set", "a", "dead"], "use foreground"),
        (&["why", "b"], "no application"),
    ] {
        let output = run(daemon.dir(), &[&["lifecycle"], verb, &["--socket", "s"]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let output = run(folder.path(), &["lifecycle", "status", "--socket", "none"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("lifecycle run CONFIG"),
        "{}",
        stderr(&output)
    );
    let second = run(daemon.dir(), &["lifecycle", "run", "apps.toml", "--socket", "s"]);
    assert!(
        stderr(&second).contains("already runs at s"),
        "{}",
        stderr(&second)
    );
    assert_eq!(
        daemon.ask(&["status"])["apps"][0]["state"],
        "cached",
        "the first daemon keeps running"
    );
}

#[test]
fn silent_clients_are_disconnected() {
    let daemon = Daemon::start(&app("a", std::process::id(), ""), &["--silent-after", "1s"]);
    let mut silent = daemon.connect();
    let mut slow = daemon.connect();
    slow.get_mut().write_all(b"{\"verb\":").unwrap();
    for client in [&mut silent, &mut slow] {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("no request for 1"), "{answer:?}");
    }
    assert_eq!(daemon.ask(&["status"])["apps"].as_array().unwrap().len(), 1);
}

#[test]
fn reload_with_a_mistake_changes_nothing() {
    let sleeper = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = sleeper.0.id();
    let daemon = Daemon::start(&app("a", pid, ""), &[]);
    let config = daemon.dir().join("apps.toml");
    let two = "[[app]]\nname = \"a\"\ncgroup = \"/x\"\n[[app]]\nname = \"b\"\ncgroup = \"/x/\"\n";
    fs::write(daemon.dir().join("two.toml"), two).unwrap();
    let output = run(
        daemon.dir(),
        &["lifecycle", "run", "two.toml", "--socket", "other"],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("two.toml:6:10: application \"a\" (line 1) claims"),
        "{}",
        stderr(&output)
    );
    daemon.ask(&["set", "a", "perceptible"]);
    fs::write(&config, two).unwrap();
    let hangup = || {
        Command::new("kill")
            .args(["-HUP", &daemon.process.0.id().to_string()])
            .status()
            .unwrap()
    };
    assert!(hangup().success());
    assert!(
        wait_until(|| daemon.log().contains("apps.toml:6:10")),
        "{}",
        daemon.log()
    );
    assert_eq!(daemon.ask(&["status"])["apps"][0]["state"], "perceptible");
    fs::write(
        &config,
        app("a", pid, "profile = \"some\"") + &app("b", 999_999_999, ""),
    )
    .unwrap();
    assert!(hangup().success());
    assert!(
        wait_until(|| daemon.log().contains("was read again")),
        "{}",
        daemon.log()
    );
    let apps = daemon.ask(&["status"])["apps"].clone();
    assert_eq!(
        (&apps[0]["state"], &apps[0]["profile"]),
        (&json!("perceptible"), &json!("some"))
    );
    assert_eq!(
        (&apps[1]["name"], &apps[1]["processes"]),
        (&json!("b"), &json!(0))
    );
}

#[test]
fn only_owner_and_root_may_set_a_state() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: acting as another user needs root");
        return;
    }
    let theirs = Command::new("sleep").arg("600").uid(NOBODY).spawn();
    let theirs = Guard(theirs.unwrap());
    let ours = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let daemon = Daemon::start(
        &(app("theirs", theirs.0.id(), "") + &app("ours", ours.0.id(), "")),
        &[],
    );
    let Some(output) = set_as_nobody(&daemon, "theirs") else {
        return;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    let output = set_as_nobody(&daemon, "ours").unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("user 65534 does not own all"),
        "{}",
        stderr(&output)
    );
    assert_eq!(daemon.ask(&["set", "ours", "cached"])["state"], "cached");
}

#[test]
fn missing_privilege_is_named() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: acting as another user needs root");
        return;
    }
    let ours = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(dir.join("apps.toml"), app("a", ours.0.id(), "profile = \"some\"")).unwrap();
    let mut command = thermo(dir, &["lifecycle", "run", "apps.toml", "--socket", "s"]);
    let log = fs::File::create(dir.join("log")).unwrap();
    let Ok(process) = command.uid(65534).stdout(Stdio::null()).stderr(log).spawn() else {
        eprintln!("SKIP: another user cannot run the command at its path");
        return;
    };
    let mut daemon = Daemon {
        folder,
        process: Guard(process),
    };
    let has_ended = |daemon: &mut Daemon| daemon.process.0.try_wait().unwrap().is_some();
    assert!(wait_until(
        || has_ended(&mut daemon) || daemon.log().contains("listening")
    ));
    if has_ended(&mut daemon) {
        eprintln!(
            "SKIP: another user cannot start the daemon: {}",
            daemon.log().trim()
        );
        return;
    }
    daemon.ask(&["set", "a", "cached"]);
    let ended = daemon.wait_for_finished("a", "reclaim");
    assert_eq!(ended["cost"]["end"], "failed", "{ended}");
    let why = ended["cost"]["error"].as_str().unwrap();
    assert!(
        why.contains("root") && why.contains(&ours.0.id().to_string()),
        "{why}"
    );
}

#[test]
fn state_set_by_owner_ends_with_its_processes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: acting as another user needs root");
        return;
    }
    let theirs = Command::new("sleep").arg("600").uid(NOBODY).spawn();
    let theirs = Guard(theirs.unwrap());
    let pid = theirs.0.id();
    let config = format!(
        "poll = \"50ms\"\n{}{}",
        app("set by owner", pid, ""),
        app("set by root", 999_999_999, "")
    );
    let daemon = Daemon::start(&config, &[]);
    daemon.ask(&["set", "set by root", "cached"]);
    let Some(output) = set_as_nobody(&daemon, "set by owner") else {
        return;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    let states = || {
        let status = daemon.ask(&["status"]);
        [0, 1].map(|at| status["apps"][at]["state"].as_str().unwrap().to_owned())
    };
    assert_eq!(states(), ["cached", "cached"]);
    drop(theirs);
    assert!(
        wait_until(|| states() == ["background", "cached"]),
        "{:?}",
        states()
    );
}

#[test]
fn long_command_lines_cost_no_memory() {
    // An argument may have 128 KiB, all together 2 MiB.
    let argument = "x".repeat((128 << 10) - 1);
    let start = |_| {
        let mut command = Command::new("sh");
        command.args(["-c", "read x"]).args([&argument; 14]).env_clear();
        Guard(command.stdin(Stdio::piped()).spawn().unwrap())
    };
    let processes: Vec<Guard> = (0..40).map(start).collect();
    let daemon = Daemon::start("[[app]]\nname = \"a\"\ncommand = \"-c read x x\"\n", &[]);
    assert_eq!(daemon.ask(&["status"])["apps"][0]["processes"], processes.len());
    let peak = daemon.peak_rss();
    // The arguments are 70 MiB.
    assert!(peak < Bytes::mib(40), "{peak}");
}

#[test]
fn flood_of_requests_costs_no_memory() {
    let daemon = Daemon::start(&app("a", std::process::id(), ""), &[]);
    for _ in 0..40 {
        daemon.ask(&["set", "a", "foreground"]);
    }
    let before = daemon.peak_rss();
    // An answer of 32 decisions has about 9 KiB, and these clients read none of it.
    let flood = b"{\"verb\":\"why\",\"app\":\"a\"}\n".repeat(500);
    let mut clients: Vec<_> = (0..30).map(|_| daemon.connect()).collect();
    for client in &mut clients {
        client.get_mut().write_all(&flood).unwrap();
    }
    assert_eq!(
        send(&mut daemon.connect(), b"{\"verb\":\"status\"}\n")["ok"],
        true
    );
    // Clients that read get all their answers.
    let reader = clients.last_mut().unwrap();
    for _ in 0..500 {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains("\"ok\":true"), "{line}");
    }
    let grown = daemon.peak_rss().saturating_sub(before);
    assert!(grown < Bytes::mib(16), "{grown}");
}

#[test]
fn watchdog_of_systemd_is_notified() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = app("a", std::process::id(), "");
    let _daemon = Daemon::start_with(&config, &[], |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
        command.env_remove("WATCHDOG_PID");
    });
    for _ in 0..3 {
        let mut text = [0; 64];
        let len = systemd.recv(&mut text).unwrap();
        assert_eq!(&text[..len], b"WATCHDOG=1");
    }
}

/// Sets the state of `app` to cached as user nobody. Returns `None` (and SKIP) if that user cannot reach the
/// command or the socket.
fn set_as_nobody(daemon: &Daemon, app: &str) -> Option<Output> {
    open_folders(daemon.dir());
    let socket = daemon.dir().join("s");
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermo"));
    command.args(["lifecycle", "set", app, "cached", "--socket"]);
    let Ok(output) = command.arg(socket).uid(NOBODY).current_dir("/").output() else {
        eprintln!("SKIP: another user cannot run the command at its path");
        return None;
    };
    if stderr(&output).contains("Permission denied") {
        eprintln!("SKIP: another user cannot reach the socket: {}", stderr(&output));
        return None;
    }
    Some(output)
}

fn open_folders(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn reused_pid_is_not_the_application() {
    let last_pid = PathBuf::from("/proc/sys/kernel/ns_last_pid");
    let mut first = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = first.0.id();
    let more = "min_anon_rss = \"0\"\nmin_change = \"0\"\nprofile = \"some\"";
    let daemon = Daemon::start(&app("a", pid, more), &[]);
    drop((first.0.kill(), first.0.wait()));
    // Other processes start, too, so it may take several tries.
    let again = (0..500).find_map(|_| {
        fs::write(&last_pid, (pid - 1).to_string()).ok()?;
        let child = Guard(Command::new("sleep").arg("600").spawn().unwrap());
        (child.0.id() == pid).then_some(child)
    });
    let Some(_again) = again else {
        eprintln!(
            "SKIP: the ID of a process cannot be chosen here ({})",
            last_pid.display()
        );
        return;
    };
    assert!(Path::new("/proc").join(pid.to_string()).exists());
    let answer = daemon.ask(&["set", "a", "cached"]);
    assert_eq!(answer["decision"]["decision"], "skip", "{answer}");
    assert!(
        answer["decision"]["reason"]
            .as_str()
            .unwrap()
            .contains("no process of the application runs"),
        "{answer}"
    );
    assert_eq!(daemon.ask(&["status"])["apps"][0]["processes"], 0);
}

#[test]
fn return_to_foreground_cancels_reclaim() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_swap) = swap() else { return };
    let target = target(folder.path());
    // Each call is followed by a pause of 200 ms, so the reclaim cannot end before it is cancelled.
    let rules = "min_change = \"0\"\nfull_full = \"0s\"\nswap_low = \"0%\"\nprofile = \"anon\"";
    let daemon = Daemon::start(
        &format!("duty = \"0.1%\"\n{}", app("a", target.0.id(), rules)),
        &[],
    );
    let before = anon_rss(target.0.id());
    daemon.ask(&["set", "a", "cached"]);
    let has_begun = || daemon.ask(&["status"])["apps"][0]["busy"] == true;
    assert!(wait_until(
        || has_begun() || daemon.finished("a", "reclaim").is_some()
    ));
    let back = daemon.ask(&["set", "a", "foreground"]);
    let ended = daemon.wait_for_finished("a", "reclaim");
    if is_refused(&ended) {
        return;
    }
    assert_eq!(ended["cost"]["end"], "cancelled", "{ended}");
    let freed = ended["cost"]["freed_kb"].as_u64().unwrap() << 10;
    assert!(freed < before.0, "{ended}");
    let decisions = daemon.ask(&["why", "a"])["decisions"].clone();
    let cancel = decisions
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["decision"] == "cancel");
    let reason = cancel.unwrap()["reason"].as_str().unwrap();
    assert!(
        reason.contains("stops after the current call"),
        "{decisions} {back}"
    );
}

#[test]
fn cached_application_is_reclaimed_and_prefetched() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_swap) = swap() else { return };
    let target = target(folder.path());
    let rules =
        "min_anon_rss = \"0\"\nmin_change = \"0\"\nfull_full = \"0s\"\nswap_low = \"0%\"\nprefetch = true";
    let daemon = Daemon::start(
        &format!("duty = \"100%\"\n{}", app("a", target.0.id(), rules)),
        &[],
    );
    let mut last = 0;
    let mut cycle = || {
        daemon.ask(&["set", "a", "cached"]);
        let ended = || {
            daemon
                .finished("a", "reclaim")
                .filter(|one| one["nr"].as_u64().unwrap() > last)
        };
        assert!(wait_until(|| ended().is_some()), "{}", daemon.ask(&["why", "a"]));
        let ended = ended().unwrap();
        last = ended["nr"].as_u64().unwrap();
        daemon.ask(&["set", "a", "foreground"]);
        ended
    };
    let first = cycle();
    if is_refused(&first) {
        return;
    }
    assert_eq!(
        (&first["profile"], &first["cost"]["end"]),
        (&json!("full"), &json!("done")),
        "{first}"
    );
    // A third of its memory is accessed all the time; the machine may have reclaimed some of the rest before.
    assert!(first["cost"]["freed_kb"].as_u64() > Some(8 << 10), "{first}");
    assert!(first["cost"]["working_set_kb"].is_null(), "{first}");
    // A third of its memory is accessed all the time; it is fetched back at a pace of the machine.
    let mut last = Value::Null;
    let is_part = |one: &Value| {
        one["cost"]["working_set_kb"]
            .as_u64()
            .is_some_and(|kb| (1 << 10..40 << 10).contains(&kb))
    };
    let is_known = wait_until(|| {
        last = cycle();
        is_part(&last)
    });
    assert!(is_known, "16 of its 48 MiB are accessed: {last}");
    let prefetch = daemon.wait_for_finished("a", "prefetch");
    assert_eq!(prefetch["cost"]["end"], "done", "{prefetch}");
}
