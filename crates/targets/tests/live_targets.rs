//! Targets on real processes: many children, many threads, a program that executes another, a control group.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use thermo_engine::TargetLayout;
use thermo_kernel::cgroup::TemporaryGroup;
use thermo_kernel::stat;
use thermo_targets::{LayoutRule, TargetError, TargetSpec, TrackedProcesses};
use thermo_units::{Addr, Bytes};

/// Environment variable that makes this test binary the program with many threads.
const RUN_THREADS: &str = "THERMO_TEST_RUN_THREADS";

/// A child process with pipes to its standard input and output. Dropping it kills the process.
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

    fn write(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Closes the pipe, so children that read from it end, too.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn root() -> &'static Path {
    Path::new("/")
}

fn track(spec: TargetSpec) -> TrackedProcesses {
    TrackedProcesses::new(root(), spec).unwrap()
}

/// Updates until `done` is true, for at most a minute.
fn update_until(
    tracked: &mut TrackedProcesses,
    what: &str,
    done: impl Fn(&TrackedProcesses, &[TargetLayout]) -> bool,
) -> Vec<TargetLayout> {
    let start = Instant::now();
    loop {
        let layouts = tracked.update().unwrap();
        if done(tracked, &layouts) {
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
fn two_hundred_children_are_tracked_until_they_end() {
    // Every child reads from a pipe, and ends when the test closes the pipe.
    let script = "i=0; while [ $i -lt 200 ]; do (read x) <&0 & i=$((i+1)); done; echo forked; wait";
    let mut program = Program::shell(&format!("exec 3<&0; {}; exit 0", script.replace("<&0", "<&3")));
    let mut tracked = track(TargetSpec::for_command(program.pid()));
    // Also updates while the children are being forked.
    tracked.update().unwrap();
    assert_eq!(program.line(), "forked");
    let layouts = update_until(&mut tracked, "200 children appear", |_, layouts| {
        layouts.len() == 201
    });
    assert!(
        layouts.windows(2).all(|pair| pair[0].id < pair[1].id),
        "ascending and unique"
    );
    assert!(layouts.iter().all(|layout| !layout.ranges.is_empty()));
    let first = layouts[0].id;
    assert!(
        !tracked.is_freshly_forked(first)
            && layouts[1..]
                .iter()
                .all(|layout| tracked.is_freshly_forked(layout.id))
    );
    tracked.clear_freshly_forked();
    assert!(!tracked.is_freshly_forked(layouts[200].id));

    program.input = None;
    update_until(&mut tracked, "all end", |tracked, layouts| {
        layouts.is_empty() && !tracked.any_left()
    });
    assert!(tracked.processes().is_empty());
}

#[test]
fn hundred_threads_are_one_target() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "run_hundred_threads"])
        .env(RUN_THREADS, "1");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
    let mut program = Program { child, input, output };
    while !program.line().ends_with("threads run") {}
    assert!(stat::read(root(), program.pid()).unwrap().num_threads > 100);
    let mut tracked = track(TargetSpec::for_command(program.pid()));
    assert_eq!(tracked.update().unwrap().len(), 1);
    assert_eq!(tracked.update().unwrap().len(), 1);

    let tids = std::fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap();
    let tids = tids
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let tid = tids.into_iter().find(|&tid| tid != program.pid()).unwrap();
    let err = TrackedProcesses::new(root(), TargetSpec::for_pids(&[tid])).unwrap_err();
    assert!(
        matches!(err, TargetError::Thread { pid, .. } if pid == program.pid()),
        "{err}"
    );
}

/// The program of the test above. Does nothing unless `RUN_THREADS` is set.
#[test]
fn run_hundred_threads() {
    if std::env::var_os(RUN_THREADS).is_none() {
        return;
    }
    let (hold, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| drop(wait.lock().map(|wait| wait.recv())));
        }
        println!("\nthreads run");
        // Ends with its standard input.
        let _ = std::io::stdin().read_line(&mut String::new());
        drop(hold);
    });
}

#[test]
fn exec_makes_a_new_target_in_the_same_process() {
    let mut program = Program::shell("echo up; read x; exec cat");
    assert_eq!(program.line(), "up");
    let mut tracked = track(TargetSpec {
        layout: LayoutRule::Mappings,
        ..TargetSpec::for_pids(&[program.pid()])
    });
    let before = update_until(&mut tracked, "it appears", |_, layouts| layouts.len() == 1);
    program.write("go\n");
    let pid = program.pid();
    let is_new_target = |layouts: &[TargetLayout]| layouts.len() == 1 && layouts[0].id != before[0].id;
    let after = update_until(&mut tracked, "it executes another program", |_, layouts| {
        is_new_target(layouts) && stat::read(root(), pid).is_ok_and(|stat| stat.comm == "cat")
    });
    assert_eq!(after[0].pid, Some(pid));
    assert!(after[0].id > before[0].id);
    program.input = None;
    update_until(&mut tracked, "it ends", |tracked, _| !tracked.any_left());
}

#[test]
fn processes_of_a_control_group_are_targets() {
    let name = format!("thermo-test-targets-{}", std::process::id());
    let group = match TemporaryGroup::create(root(), "memory", &name) {
        Ok(group) => group,
        Err(err) => {
            eprintln!("SKIP: no control group can be created here: {err}");
            return;
        }
    };
    let mut program = Program::shell("echo up; read x");
    assert_eq!(program.line(), "up");
    let mut tracked = track(TargetSpec::for_cgroup(&format!("/{name}")));
    assert!(tracked.update().unwrap().is_empty() && tracked.any_left());
    let warnings = tracked.take_warnings();
    assert_eq!(warnings, [format!("control group /{name} has no process")]);
    group.group().add(program.pid()).unwrap();
    let pid = Some(program.pid());
    update_until(&mut tracked, "it joins", |_, layouts| {
        layouts.len() == 1 && layouts[0].pid == pid
    });
    drop(program);
    update_until(&mut tracked, "it ends", |_, layouts| layouts.is_empty());
    let dir = group.group().dir.clone();
    group.remove().unwrap();
    assert!(!dir.exists() && !tracked.any_left());
}

/// A program whose first thread ends after it read a line, while another thread continues. In Python, because
/// that needs no compiler.
const ENDS_FIRST_THREAD: &str = "
import ctypes, sys, threading
print('ready', flush=True)
sys.stdin.readline()
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
";

#[test]
fn process_without_first_thread_is_skipped_with_warning() {
    let started = Program::start(Command::new("python3").args(["-c", ENDS_FIRST_THREAD]));
    let Ok(mut program) = started else {
        eprintln!("SKIP: python3 is not installed");
        return;
    };
    assert_eq!(program.line(), "ready");
    let spec = TargetSpec::for_pids(&[program.pid()]);
    let mut tracked = track(spec.clone());
    assert_eq!(tracked.update().unwrap().len(), 1);
    program.write("end\n");
    update_until(&mut tracked, "its first thread ends", |_, layouts| {
        layouts.is_empty()
    });
    let warnings = tracked.take_warnings();
    assert!(
        matches!(&warnings[..], [text] if text.contains("without its first thread")),
        "{warnings:?}"
    );
    assert!(tracked.update().unwrap().is_empty() && tracked.any_left());
    assert!(tracked.take_warnings().is_empty(), "one warning");
    let refusal = TrackedProcesses::new(root(), spec).err().unwrap().to_string();
    assert!(
        refusal.contains("continues without its first thread"),
        "{refusal}"
    );
}

/// Maps 4 MiB twice without access: the first was written before. Prints both addresses.
const INACCESSIBLE: &str = r#"
import ctypes, mmap, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
size, anon = 4 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
# Readable memory around them keeps the kernel from joining the two.
libc.mmap(None, size, mmap.PROT_READ, anon, -1, 0)
written = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, anon, -1, 0)
libc.mmap(None, size, mmap.PROT_READ, anon, -1, 0)
ctypes.memset(written, 1, size)
libc.mprotect(ctypes.c_void_p(written), ctypes.c_size_t(size), 0)
print(written, libc.mmap(None, size, 0, anon, -1, 0), flush=True)
sys.stdin.read()
"#;

#[test]
fn inaccessible_memory_that_holds_pages_is_monitored() {
    let started = Program::start(Command::new("python3").args(["-c", INACCESSIBLE]));
    let mut program = match started {
        Ok(program) => program,
        Err(why) => return eprintln!("SKIP: the target needs python3: {why}"),
    };
    let line = program.line();
    let addresses: Vec<u64> = line
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let [written, empty] = addresses[..] else {
        panic!("two addresses: {line:?}");
    };
    let spec = TargetSpec {
        pids: vec![program.pid()],
        layout: LayoutRule::Mappings,
        ..TargetSpec::default()
    };
    let layouts = TrackedProcesses::new(Path::new("/"), spec)
        .unwrap()
        .update()
        .unwrap();
    let covers = |addr: u64| layouts[0].ranges.iter().any(|range| range.contains(Addr(addr)));
    assert_eq!((covers(written), covers(empty)), (true, false), "{layouts:?}");
}

/// Uses 32 MiB and starts `cat FIFO`. `posix_spawn` opens the FIFO in the child, which shares the address
/// space of its parent until it executes `cat`: for as long as nobody writes to the FIFO.
const SPAWNER: &str = r#"
import os, sys
memory = bytearray(b"x" * (32 << 20))
print("ready", flush=True)
os.posix_spawn("/bin/cat", ["cat"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
sys.stdin.read()
"#;

#[test]
fn shared_address_space_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let started = Program::start(Command::new("python3").args(["-c", SPAWNER]).arg(&fifo));
    let Ok(mut program) = started.inspect_err(|why| eprintln!("SKIP: this test needs python3: {why}")) else {
        return;
    };
    assert_eq!(program.line(), "ready");
    let mut tracked = track(TargetSpec::for_command(program.pid()));
    let layouts = update_until(&mut tracked, "the child appears", |_, layouts| layouts.len() == 2);
    let resident: Vec<Option<Bytes>> = layouts.iter().map(|layout| layout.resident).collect();
    assert!(resident[0] > Some(Bytes::mib(32)), "{resident:?}");
    assert_eq!(resident[1], Some(Bytes::ZERO));
    assert!(layouts[1].ranges.is_empty());

    // Opening it lets the child go on.
    let writer = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    update_until(&mut tracked, "cat has its own memory", |_, layouts| {
        layouts.len() == 2
            && layouts[1].resident > Some(Bytes::ZERO)
            && layouts[1].resident < Some(Bytes::mib(16))
            && !layouts[1].ranges.is_empty()
    });
    drop(writer);
}
