//! `thermo fs`: a command in its own mount namespace, a service, and what remains after either is killed.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const THERMO: &str = env!("CARGO_BIN_EXE_thermo");
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("SKIP: mounting control files needs root and /dev/fuse");
    }
    can
}

fn run_inside(script: &str) -> Output {
    let mut command = Command::new(THERMO);
    let command = command
        .args(["fs", "--", "sh", "-c", script])
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "timed out waiting until {what}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Mounts at, and entries of, /sys/kernel/mm outside of the namespace. Other tests mount elsewhere.
fn outer_state() -> (Vec<String>, Vec<String>) {
    let mut names: Vec<String> = fs::read_dir("/sys/kernel/mm")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(" /sys/kernel/mm"));
    (mounts.map(str::to_owned).collect(), names)
}

/// A process that is killed at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn command_sees_our_files_only_inside() {
    if !can_mount() {
        return;
    }
    let before = outer_state();
    let script = format!(
        "cd {KDAMONDS} && echo 1 >nr_kdamonds && cat nr_kdamonds 0/state && test -d /sys/kernel/mm/transparent_hugepage \
         && ls -A $HOME && perf --version && exit 7"
    );
    let output = run_inside(&script);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let output_text = text(&output.stdout);
    assert!(output_text.starts_with("1\noff\nperf version"), "{output_text}");
    assert_eq!(outer_state(), before);
}

#[test]
fn perf_replacement_records_events() {
    if !can_mount() {
        return;
    }
    let script = format!(
        "set -e; cd {KDAMONDS}; echo 1 >nr_kdamonds; echo 1 >0/contexts/nr_contexts; cd 0/contexts/0
         sleep 600 & target=$!; trap 'kill $target' EXIT
         echo 1 >targets/nr_targets; echo $target >targets/0/pid_target
         perf record -a -o $HOME/out -e damon:damon_aggregated & perf=$!
         echo on >../../state
         while ! [ -s $HOME/out ]; do sleep 0.05; done
         kill -INT $perf; wait $perf || true
         perf script --force -i $HOME/out; echo off >../../state"
    );
    let output = run_inside(&script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output_text = text(&output.stdout);
    let line = output_text.lines().next().unwrap_or_default();
    assert!(line.starts_with("kdamond.0 "), "{line}");
    assert!(
        line.contains(": damon:damon_aggregated: target_id=0 nr_regions="),
        "{line}"
    );
}

#[test]
fn perf_record_ends_with_its_command() {
    if !can_mount() {
        return;
    }
    // `timeout` ends a perf that does not end by itself, with status 124.
    let script = "cd $HOME; timeout 60 perf record -ae damon:damon_aggregated -- sh -c 'echo ran; exit 3'
         echo $?; test -e perf.data && perf script && echo printed";
    let output = run_inside(script);
    assert_eq!(
        text(&output.stdout),
        "ran\n3\nprinted\n",
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn perf_refuses_damon_events_that_it_cannot_show() {
    if !can_mount() {
        return;
    }
    for (arguments, expected) in [
        ("trace -e damon:damon_aggregated", "`perf trace` cannot show"),
        ("stat --event=damon:* -- true", "`perf stat` cannot show"),
        (
            "record -e damon:damos_before_apply -- true",
            "cannot record damon:damos_before_apply",
        ),
        (
            "record -e cycles,damon:damon_aggregated -- true",
            "cannot record cycles",
        ),
    ] {
        let output = run_inside(&format!("cd $HOME; timeout 60 perf {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let message = text(&output.stderr);
        assert!(
            message.contains(expected) && message.contains("perf record"),
            "{message}"
        );
    }
}

/// Starts two kdamonds, so that `a` and `b` are their pids.
const TWO_KDAMONDS: &str = "set -e; cd /sys/kernel/mm/damon/admin/kdamonds; sleep 600 & target=$!
     trap 'kill $target' EXIT; echo 2 >nr_kdamonds
     for n in 0 1; do echo 1 >$n/contexts/nr_contexts; echo 1 >$n/contexts/0/targets/nr_targets
     echo $target >$n/contexts/0/targets/0/pid_target; echo on >$n/state; done
     a=$(cat 0/pid) b=$(cat 1/pid)";

#[test]
fn programs_find_our_kdamonds_only() {
    if !can_mount() {
        return;
    }
    // An impostor outside: as with a kdamond of the kernel, a process has the name.
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("kdamond.0");
    fs::copy("/bin/sleep", &named).unwrap();
    let _impostor = Running(Command::new(&named).arg("600").spawn().unwrap());
    for (command, expected) in [
        ("pgrep kdamond", "$a $b"),
        ("pgrep -x kdamond.0", "$a"),
        ("pgrep -x kdamond || echo none", "none"),
        ("pgrep -l kdamond.1", "$b kdamond.1"),
        ("pgrep -xl 'kdamond.[01]'", "$a kdamond.0 $b kdamond.1"),
        ("pgrep -n kdamond", "$b"),
        ("pgrep --oldest kdamond", "$a"),
        ("pgrep -c kdamond", "2"),
        ("pgrep -d, kdamond || echo $?", "2"),
        ("pidof kdamond.0", "$a"),
        ("pidof kdamond.0 kdamond.1", "$b $a"),
        ("pidof kdamond.7 || echo none", "none"),
        ("ps --pid $a -o pid=,comm=", "$a kdamond.0"),
        ("ps -p $b -o pid,args | tail -n 1", "$b kdamond.1"),
        ("ps -p $a | wc -l", "2"),
        ("ps -f -p $a --no-headers | wc -l", "1"),
        ("ps -p $a -o %cpu | wc -l", "2"),
        ("ps -p $$ -o comm=", "sh"),
        ("PATH=/tmp:$PATH ps -p $$ -o comm=", "sh"),
    ] {
        let script = format!("{TWO_KDAMONDS}; echo \"{expected}\"; {command}");
        let output = run_inside(&script);
        let (printed, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{command}: {printed}{errors}");
        let (expected, got) = printed.split_once('\n').unwrap();
        let got: Vec<&str> = got.split_ascii_whitespace().collect();
        assert_eq!(got.join(" "), expected, "{command}: {errors}");
    }
}

#[test]
fn killed_fs_leaves_nothing_and_ends_its_command() {
    if !can_mount() {
        return;
    }
    let before = outer_state();
    let dir = tempfile::tempdir().unwrap();
    let (pid, done) = (dir.path().join("pid"), dir.path().join("done"));
    let script = format!(
        "trap 'echo hung up >{done}; exit' HUP; echo $$ >{pid}.new; mv {pid}.new {pid}; while :; do sleep 0.05; done",
        done = done.display(),
        pid = pid.display()
    );
    let mut command = Command::new(THERMO);
    let command = command
        .args(["fs", "--", "sh", "-c", &script])
        .stdin(Stdio::null());
    let mut thermo = Running(command.spawn().unwrap());
    wait_until("the command runs", || pid.exists());
    thermo.0.kill().unwrap();
    thermo.0.wait().unwrap();
    wait_until("the command gets SIGHUP", || done.exists());
    let pid = fs::read_to_string(&pid).unwrap();
    wait_until("the command has ended", || {
        !Path::new(&format!("/proc/{}", pid.trim())).exists()
    });
    assert_eq!(outer_state(), before);
}

/// Sends SIGTERM, upon which a service unmounts, and waits for the end.
fn terminate(child: &mut Child) {
    if let Ok(None) = child.try_wait() {
        let pid = rustix::process::Pid::from_child(child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    drop(child.wait());
}

/// `thermo fs --mount`, which is ended and unmounted at the end of the test, also if the test fails.
struct Service<'a> {
    child: Child,
    dir: &'a Path,
}

impl<'a> Service<'a> {
    fn start(dir: &'a Path) -> Self {
        let mut command = Command::new(THERMO);
        let command = command.args(["fs", "--mount"]).arg(dir);
        let command = command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let service = Self { child, dir };
        // Names of the old mount may still be cached, so read a file.
        wait_until("the service is mounted", || {
            fs::read(dir.join("admin/kdamonds/nr_kdamonds")).is_ok()
        });
        service
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        terminate(&mut self.child);
        // Fails if nothing is mounted there any more.
        let _ = rustix::mount::unmount(self.dir, rustix::mount::UnmountFlags::DETACH);
    }
}

/// The notes about mounts that `thermo doctor --leftovers` lists for `dir`, and its exit code.
fn listed_mounts(dir: &Path) -> Vec<String> {
    let mut command = Command::new(THERMO);
    let output = command.args(["doctor", "--leftovers"]).output().unwrap();
    let dir = format!("dead control files at {}:", dir.display());
    let listed: Vec<String> = text(&output.stdout)
        .lines()
        .filter(|line| line.contains(&dir))
        .map(str::to_owned)
        .collect();
    assert!(listed.is_empty() || output.status.code() == Some(1));
    listed
}

#[test]
fn service_mounts_again_after_it_was_killed() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut killed = Service::start(dir.path());
    killed.kill();
    let mut interrupted = Service::start(dir.path());
    let held = fs::File::open(dir.path().join("admin/kdamonds/nr_kdamonds")).unwrap();
    terminate(&mut interrupted.child);
    assert_eq!(interrupted.child.wait().unwrap().code(), Some(130));
    drop(held);
    assert!(!dir.path().join("admin").exists());
}

#[test]
fn mount_of_killed_service_is_listed_until_undone() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::Builder::new().prefix("with blank ").tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let mut killed = Service::start(&dir);
    assert_eq!(listed_mounts(&dir), [""; 0], "the service runs");
    killed.kill();
    let listed = listed_mounts(&dir);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let (_, undo) = listed[0].split_once('`').unwrap();
    let (undo, _) = undo.split_once('`').unwrap();
    assert!(Command::new("sh").args(["-c", undo]).status().unwrap().success());
    assert_eq!(listed_mounts(&dir), [""; 0], "after `{undo}`");

    let mut killed = Service::start(&dir);
    killed.kill();
    let again = Service::start(&dir);
    assert_eq!(
        listed_mounts(&dir),
        [""; 0],
        "another service removed the dead mount"
    );
    drop(again);
    assert_eq!(listed_mounts(&dir), [""; 0], "nothing is mounted");
}

#[test]
fn misuse_is_refused_with_a_sentence() {
    let refused = |arguments: &[&str]| {
        let mut command = Command::new(THERMO);
        let output = command
            .arg("fs")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, message) = refused(&[]);
    assert_eq!(code, Some(2));
    assert!(message.contains("give a command, as in"), "{message}");
    if !can_mount() {
        return;
    }
    let (code, message) = refused(&["--", "no-such-program"]);
    assert_eq!(code, Some(127), "{message}");
    let (code, message) = refused(&["--tracker", "crystal-ball", "--", "true"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("crystal-ball is not a tracker"), "{message}");
    let (code, message) = refused(&["--mount", "/no/such/folder"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("create the directory first"), "{message}");
    let (code, message) = refused(&["--mount", "/proc/self/status"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("is not a directory"), "{message}");
    if Path::new("/sys/kernel/mm/damon").exists() {
        let (code, message) = refused(&["--mount", "/sys/kernel/mm/damon"]);
        assert_eq!(code, Some(2));
        assert!(message.contains("belongs to the kernel's own DAMON"), "{message}");
    }
}
