//! Targets on real processes: storms of children, many threads, a program that runs another, a group of our own.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use thermo_engine::TargetLayout;
use thermo_kernel::cgroup::OwnGroup;
use thermo_kernel::stat;
use thermo_targets::{LayoutRule, TargetError, TargetSpec, TrackedProcesses};

/// Set in the environment of ourselves started as a program of many threads.
const BE_THREADS: &str = "THERMO_TEST_BE_THREADS";

/// A process of ours that talks with us through pipes; ended when dropped.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn shell(script: &str) -> Self {
        Self::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Ok(Self { child, input, output })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(
            self.output.read_line(&mut line).unwrap(),
            0,
            "the program ended before it was ready"
        );
        line.trim().to_owned()
    }

    fn say(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Whoever reads from the pipe sees its end, children too.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn here() -> &'static Path {
    Path::new("/")
}

fn members(spec: TargetSpec) -> TrackedProcesses {
    TrackedProcesses::new(here(), spec).unwrap()
}

/// Updates until `done`, which must come true within a minute.
fn until(
    members: &mut TrackedProcesses,
    what: &str,
    done: impl Fn(&TrackedProcesses, &[TargetLayout]) -> bool,
) -> Vec<TargetLayout> {
    let start = Instant::now();
    loop {
        let layouts = members.update().unwrap();
        if done(members, &layouts) {
            return layouts;
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{what}: {} targets",
            layouts.len()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_storm_of_children_is_followed_and_its_end_noticed() {
    // Every child waits on the pipe that only we hold open, and so ends when we close it.
    let script = "i=0; while [ $i -lt 200 ]; do (read x) <&0 & i=$((i+1)); done; echo forked; wait";
    let mut program = Program::shell(&format!("exec 3<&0; {}; exit 0", script.replace("<&0", "<&3")));
    let mut members = members(TargetSpec::of_command(program.pid()));
    // Looked at while the storm goes on, too.
    members.update().unwrap();
    assert_eq!(program.line(), "forked");
    let layouts = until(&mut members, "200 children appear", |_, layouts| {
        layouts.len() == 201
    });
    assert!(
        layouts.windows(2).all(|pair| pair[0].id < pair[1].id),
        "ascending, none twice"
    );
    assert!(layouts.iter().all(|layout| !layout.ranges.is_empty()));
    let first = layouts[0].id;
    assert!(!members.is_fresh(first) && layouts[1..].iter().all(|layout| members.is_fresh(layout.id)));
    members.looked_at();
    assert!(!members.is_fresh(layouts[200].id));

    program.input = None;
    until(&mut members, "all end", |members, layouts| {
        layouts.is_empty() && !members.any_left()
    });
    assert!(members.processes().is_empty());
}

#[test]
fn a_hundred_threads_are_one_target() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "being_a_hundred_threads"])
        .env(BE_THREADS, "1");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
    let mut program = Program { child, input, output };
    while !program.line().ends_with("threads run") {}
    assert!(stat::read(here(), program.pid()).unwrap().num_threads > 100);
    let mut members = members(TargetSpec::of_command(program.pid()));
    assert_eq!(members.update().unwrap().len(), 1);
    assert_eq!(members.update().unwrap().len(), 1);

    let tids = std::fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap();
    let tids = tids
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let tid = tids.into_iter().find(|&tid| tid != program.pid()).unwrap();
    let err = TrackedProcesses::new(here(), TargetSpec::of_pids(&[tid])).unwrap_err();
    assert!(
        matches!(err, TargetError::Thread { pid, .. } if pid == program.pid()),
        "{err}"
    );
}

/// The program that the test above looks at; as a test of its own it does nothing.
#[test]
fn being_a_hundred_threads() {
    if std::env::var_os(BE_THREADS).is_none() {
        return;
    }
    let (hold, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| drop(wait.lock().map(|wait| wait.recv())));
        }
        println!("\nthreads run");
        // The end of the pipe is the end of us.
        let _ = std::io::stdin().read_line(&mut String::new());
        drop(hold);
    });
}

#[test]
fn running_another_program_is_a_new_target_in_the_same_process() {
    let mut program = Program::shell("echo up; read x; exec cat");
    assert_eq!(program.line(), "up");
    let mut members = members(TargetSpec {
        layout: LayoutRule::Mappings,
        ..TargetSpec::of_pids(&[program.pid()])
    });
    let before = until(&mut members, "it appears", |_, layouts| layouts.len() == 1);
    program.say("go\n");
    let pid = program.pid();
    let ours = |layouts: &[TargetLayout]| layouts.len() == 1 && layouts[0].id != before[0].id;
    let after = until(&mut members, "it runs another program", |_, layouts| {
        ours(layouts) && stat::read(here(), pid).is_ok_and(|stat| stat.comm == "cat")
    });
    assert_eq!(after[0].pid, Some(pid));
    assert!(after[0].id > before[0].id);
    program.input = None;
    until(&mut members, "it ends", |members, _| !members.any_left());
}

#[test]
fn the_processes_of_a_group_of_our_own_are_targets() {
    let name = format!("thermo-test-targets-{}", std::process::id());
    let group = match OwnGroup::create(here(), "memory", &name) {
        Ok(group) => group,
        Err(err) => {
            eprintln!("SKIP: no control group can be made here: {err}");
            return;
        }
    };
    let mut program = Program::shell("echo up; read x");
    assert_eq!(program.line(), "up");
    let mut members = members(TargetSpec::of_cgroup(&format!("/{name}")));
    assert!(members.update().unwrap().is_empty() && members.any_left());
    group.group().add(program.pid()).unwrap();
    let pid = Some(program.pid());
    until(&mut members, "it joins", |_, layouts| {
        layouts.len() == 1 && layouts[0].pid == pid
    });
    drop(program);
    until(&mut members, "it ends", |_, layouts| layouts.is_empty());
    let dir = group.group().dir.clone();
    group.remove().unwrap();
    assert!(!dir.exists() && !members.any_left());
}

/// Python, because its main thread can be ended from within like any program's.
const LEAVES_ITS_FIRST_THREAD: &str = "
import ctypes, sys, threading
def rest():
    print('ready', flush=True)
    sys.stdin.read()
threading.Thread(target=rest).start()
ctypes.CDLL(None).pthread_exit(None)
";

#[test]
fn a_process_without_its_first_thread_is_told_of_and_left_alone() {
    let started = Program::start(Command::new("python3").args(["-c", LEAVES_ITS_FIRST_THREAD]));
    let Ok(mut program) = started else {
        eprintln!("SKIP: there is no python3");
        return;
    };
    assert_eq!(program.line(), "ready");
    let mut members = members(TargetSpec::of_pids(&[program.pid()]));
    until(&mut members, "its first thread ends", |_, layouts| {
        layouts.is_empty()
    });
    let news = members.take_news();
    assert!(
        matches!(&news[..], [text] if text.contains("without its first thread")),
        "{news:?}"
    );
    assert!(members.update().unwrap().is_empty() && members.any_left());
    assert!(members.take_news().is_empty(), "it is told once");
}
