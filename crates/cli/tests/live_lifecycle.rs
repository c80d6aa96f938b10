//! The life cycle daemon, through its socket and its verbs.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;
mod daemon;

use std::fs;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Guard, run, stderr, thermo, wait_until};
use daemon::{Daemon, anon_rss, app, is_refused, say, swap, target};
use serde_json::{Value, json};

#[test]
fn who_may_say_what_is_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let sleeper = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let daemon = Daemon::start(&app("a", sleeper.0.id(), ""), &["--silent-after", "300s"]);
    let mut client = daemon.connect();
    for (line, says) in [
        (&b"nonsense\n"[..], "no request"),
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
        let answer = say(&mut client, line);
        assert_eq!((&answer["schema"], &answer["ok"]), (&json!(1), &json!(false)));
        assert!(answer["error"].as_str().unwrap().contains(says), "{answer}");
    }
    // The client is still heard after its mistakes, and two requests at once are two answers.
    let answer = say(
        &mut client,
        b"{\"verb\":\"set\",\"app\":\"a\",\"state\":\"cached\"}\n{\"verb\":\"status\"}\n",
    );
    assert_eq!(
        (&answer["ok"], &answer["state"]),
        (&json!(true), &json!("cached"))
    );
    // What is decided depends on the swap this machine has; that it is said why does not.
    assert!(
        answer["decision"]["reason"]
            .as_str()
            .is_some_and(|why| !why.is_empty()),
        "{answer}"
    );
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    assert!(line.contains("\"apps\""), "{line}");
    let answer = say(&mut daemon.connect(), &[b'x'; 5000]);
    assert!(answer["error"].as_str().unwrap().contains("4096"), "{answer}");
    for (verb, says) in [
        (&["set", "b", "cached"][..], "no application"),
        (&["set", "a", "dead"], "use foreground"),
        (&["why", "b"], "no application"),
    ] {
        let output = run(
            daemon.here(),
            &[&["lifecycle"], verb, &["--socket", "s"]].concat(),
        );
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
    let output = run(folder.path(), &["lifecycle", "status", "--socket", "none"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("lifecycle run CONFIG"),
        "{}",
        stderr(&output)
    );
    let second = run(daemon.here(), &["lifecycle", "run", "apps.toml", "--socket", "s"]);
    assert!(
        stderr(&second).contains("answers at s already"),
        "{}",
        stderr(&second)
    );
    assert_eq!(
        daemon.ask(&["status"])["apps"][0]["state"],
        "cached",
        "the first one goes on"
    );
}

#[test]
fn who_says_nothing_is_let_go_of_and_others_are_not() {
    let daemon = Daemon::start(&app("a", std::process::id(), ""), &["--silent-after", "1s"]);
    let mut silent = daemon.connect();
    let mut slow = daemon.connect();
    slow.get_mut().write_all(b"{\"verb\":").unwrap();
    for client in [&mut silent, &mut slow] {
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert!(told.contains("nothing was asked for 1"), "{told:?}");
    }
    assert_eq!(daemon.ask(&["status"])["apps"].as_array().unwrap().len(), 1);
}

#[test]
fn a_mistake_has_its_place_and_a_reload_with_one_changes_nothing() {
    let sleeper = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = sleeper.0.id();
    let daemon = Daemon::start(&app("a", pid, ""), &[]);
    let config = daemon.here().join("apps.toml");
    let two = "[[app]]\nname = \"a\"\ncgroup = \"/x\"\n[[app]]\nname = \"b\"\ncgroup = \"/x/\"\n";
    fs::write(daemon.here().join("two.toml"), two).unwrap();
    let output = run(
        daemon.here(),
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
        wait_until(|| daemon.told().contains("apps.toml:6:10")),
        "{}",
        daemon.told()
    );
    assert_eq!(daemon.ask(&["status"])["apps"][0]["state"], "perceptible");
    fs::write(
        &config,
        app("a", pid, "profile = \"some\"") + &app("b", 999_999_999, ""),
    )
    .unwrap();
    assert!(hangup().success());
    assert!(
        wait_until(|| daemon.told().contains("was read anew")),
        "{}",
        daemon.told()
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
fn its_owner_and_root_may_set_a_state_and_nobody_else() {
    let nobody = 65534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: acting as another user needs root");
        return;
    }
    let theirs = Command::new("sleep").arg("600").uid(nobody).spawn();
    let theirs = Guard(theirs.unwrap());
    let ours = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let daemon = Daemon::start(
        &(app("theirs", theirs.0.id(), "") + &app("ours", ours.0.id(), "")),
        &[],
    );
    let socket = daemon.here().join("s");
    open_folders(daemon.here());
    let set = |app: &str| {
        let arguments = [
            "lifecycle",
            "set",
            app,
            "cached",
            "--socket",
            socket.to_str().unwrap(),
        ];
        Command::new(env!("CARGO_BIN_EXE_thermo"))
            .args(arguments)
            .uid(nobody)
            .current_dir("/")
            .output()
    };
    let Ok(output) = set("theirs") else {
        eprintln!("SKIP: another user cannot run the command where it lies");
        return;
    };
    if stderr(&output).contains("Permission denied") {
        eprintln!("SKIP: another user cannot reach the socket: {}", stderr(&output));
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let output = set("ours").unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("user 65534 does not own all"),
        "{}",
        stderr(&output)
    );
    assert_eq!(daemon.ask(&["set", "ours", "cached"])["state"], "cached");
}

#[test]
fn without_the_right_it_is_said_what_right_is_missing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: acting as another user needs root");
        return;
    }
    let ours = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(here, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(
        here.join("apps.toml"),
        app("a", ours.0.id(), "profile = \"some\""),
    )
    .unwrap();
    let mut command = thermo(here, &["lifecycle", "run", "apps.toml", "--socket", "s"]);
    let told = fs::File::create(here.join("told")).unwrap();
    let Ok(process) = command.uid(65534).stdout(Stdio::null()).stderr(told).spawn() else {
        eprintln!("SKIP: another user cannot run the command where it lies");
        return;
    };
    let mut daemon = Daemon {
        folder,
        process: Guard(process),
    };
    let over = |daemon: &mut Daemon| daemon.process.0.try_wait().unwrap().is_some();
    assert!(wait_until(
        || over(&mut daemon) || daemon.told().contains("listening")
    ));
    if over(&mut daemon) {
        eprintln!("SKIP: another user cannot begin here: {}", daemon.told().trim());
        return;
    }
    daemon.ask(&["set", "a", "cached"]);
    let ended = daemon.wait_for_end("a", "reclaim");
    assert_eq!(ended["cost"]["end"], "failed", "{ended}");
    let why = ended["cost"]["error"].as_str().unwrap();
    assert!(
        why.contains("root") && why.contains(&ours.0.id().to_string()),
        "{why}"
    );
}

fn open_folders(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_number_that_is_used_again_is_never_taken_for_the_application() {
    let last_pid = PathBuf::from("/proc/sys/kernel/ns_last_pid");
    let mut first = Guard(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = first.0.id();
    let more = "min_anon_rss = \"0\"\nmin_change = \"0\"\nprofile = \"some\"";
    let daemon = Daemon::start(&app("a", pid, more), &[]);
    drop((first.0.kill(), first.0.wait()));
    // Others start processes too: a few tries.
    let again = (0..500).find_map(|_| {
        fs::write(&last_pid, (pid - 1).to_string()).ok()?;
        let child = Guard(Command::new("sleep").arg("600").spawn().unwrap());
        (child.0.id() == pid).then_some(child)
    });
    let Some(_again) = again else {
        eprintln!(
            "SKIP: the number of a process cannot be chosen here ({})",
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
            .contains("no process of it runs"),
        "{answer}"
    );
    assert_eq!(daemon.ask(&["status"])["apps"][0]["processes"], 0);
}

#[test]
fn who_comes_back_in_the_middle_stops_the_reclaim_between_two_calls() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_swap) = swap() else { return };
    let target = target(folder.path());
    // A call, then a pause of 200 ms: it cannot have ended before it is told to.
    let rules = "min_change = \"0\"\nfull_full = \"0s\"\nswap_low = \"0%\"\nprofile = \"anon\"";
    let daemon = Daemon::start(
        &format!("duty = \"0.1%\"\n{}", app("a", target.0.id(), rules)),
        &[],
    );
    let before = anon_rss(target.0.id());
    daemon.ask(&["set", "a", "cached"]);
    let begun = || daemon.ask(&["status"])["apps"][0]["busy"] == true;
    assert!(wait_until(|| begun() || daemon.ended("a", "reclaim").is_some()));
    let back = daemon.ask(&["set", "a", "foreground"]);
    let ended = daemon.wait_for_end("a", "reclaim");
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
        reason.contains("stops after the call it is in"),
        "{decisions} {back}"
    );
}

#[test]
fn what_is_put_away_leaves_memory_and_what_it_used_is_remembered() {
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
                .ended("a", "reclaim")
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
    // A quarter of its memory is touched on and on; some of the rest the machine may have taken before.
    assert!(first["cost"]["freed_kb"].as_u64() > Some(8 << 10), "{first}");
    assert!(first["cost"]["working_set_kb"].is_null(), "{first}");
    // A third of its memory is touched on and on; how soon after it is back is the machine's affair.
    let mut last = Value::Null;
    let is_part = |one: &Value| {
        one["cost"]["working_set_kb"]
            .as_u64()
            .is_some_and(|kb| (1 << 10..40 << 10).contains(&kb))
    };
    let told = wait_until(|| {
        last = cycle();
        is_part(&last)
    });
    assert!(told, "16 of its 48 MiB are touched: {last}");
    let brought = daemon.wait_for_end("a", "prefetch");
    assert_eq!(brought["cost"]["end"], "done", "{brought}");
}
