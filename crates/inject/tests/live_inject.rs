//! Injected calls: the flag is set, and nothing else changes, even if the tracer dies.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![cfg(target_arch = "x86_64")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use thermo_inject::{Call, HugeFlag, InjectError, Injector, Request};
use thermo_kernel::pidfd::PidFd;
use thermo_kernel::{maps, smaps, thp};
use thermo_units::AddrRange;

/// For the copy of this test program that dies: target, range, and the number of the last
/// request.
const DIE_AFTER: &str = "THERMO_TEST_INJECT_AND_DIE";

/// A running `targets/registers.c`.
struct Target {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pid: u32,
    pidfd: PidFd,
    range: AddrRange,
    /// The thread that checks its registers.
    tid: u32,
}

/// Compiles the target in `folder`; prints why if it cannot.
fn compile(folder: &Path) -> Option<PathBuf> {
    if thp::read(Path::new("/")).unwrap().is_none() {
        eprintln!("SKIP: this kernel has no transparent huge pages, so their flags cannot be set");
        return None;
    }
    let program = folder.join("registers");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/targets/registers.c");
    let compiled = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    if compiled.is_err() {
        eprintln!("SKIP: no C compiler (cc) for the target");
        return None;
    }
    assert!(compiled.unwrap().success(), "{source} does not compile");
    Some(program)
}

/// Compiles and starts the target; prints why if it cannot.
fn start(mode: &str) -> Option<Target> {
    let folder = tempfile::tempdir().unwrap();
    launch(&compile(folder.path())?, mode)
}

/// Starts the target, unless it may not be traced.
fn launch(program: &Path, mode: &str) -> Option<Target> {
    let mut child = Command::new(program)
        .arg(mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words.first(), Some(&"ready"), "{line}");
    let hex = |at: usize| u64::from_str_radix(words[at], 16).unwrap();
    let pid = words[1].parse().unwrap();
    let target = Target {
        child,
        stdout,
        pid,
        pidfd: PidFd::open(pid).unwrap(),
        range: AddrRange::new(hex(2), hex(3)),
        tid: words[4].parse().unwrap(),
    };
    target.may_be_traced().then_some(target)
}

impl Target {
    fn may_be_traced(&self) -> bool {
        let call = self.call(HugeFlag::HugePage);
        match Injector::new(Path::new("/")).madvise(&self.pidfd, self.pid, call) {
            Err(InjectError::Kernel { source, .. }) if source.raw_os_error() == Some(libc::EPERM) => {
                eprintln!("SKIP: other processes may not be traced here: {source}");
                false
            }
            _ => true,
        }
    }

    const fn call(&self, flag: HugeFlag) -> Call {
        Call {
            range: self.range,
            flag,
        }
    }

    fn has(&self, flag: HugeFlag) -> bool {
        // The main thread may have ended: mappings are visible only through another thread.
        let vmas = smaps::read(Path::new("/"), self.tid).unwrap();
        let within = |vma: &&smaps::Vma| vma.mapping.range.intersection(&self.range).is_some();
        let mut vmas = vmas.iter().filter(within).peekable();
        vmas.peek().is_some() && vmas.all(|vma| vma.has_flag(flag.vm_flag()))
    }

    /// Stops the target and checks its report.
    fn intact(mut self) {
        self.child.stdin.take().unwrap().write_all(b"q").unwrap();
        let mut report = String::new();
        self.stdout.read_line(&mut report).unwrap();
        assert!(
            report.starts_with("intact "),
            "{report:?}, {:?}",
            self.child.wait()
        );
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Retries while no thread is suitable: the machine is busy. Returns the thread that made the call.
fn madvise(injector: &mut Injector, target: &Target, flag: HugeFlag) -> Result<u32, InjectError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match injector.madvise(&target.pidfd, target.pid, target.call(flag)) {
            Ok(done) => {
                assert_eq!(done.errno, 0);
                return Ok(done.tid);
            }
            Err(InjectError::NoSuitableThread { .. }) if Instant::now() < deadline => {}
            Err(error) => return Err(error),
        }
    }
}

fn flags_are_set(mode: &str) {
    let Some(target) = start(mode) else { return };
    let mut injector = Injector::new(Path::new("/"));
    for _ in 0..15 {
        for flag in [HugeFlag::NoHugePage, HugeFlag::HugePage] {
            madvise(&mut injector, &target, flag).unwrap();
            assert!(target.has(flag), "{flag:?} in {mode}");
        }
    }
    target.intact();
}

#[test]
fn computing_program_keeps_registers() {
    flags_are_set("spin");
}

#[test]
fn waiting_program_keeps_registers_and_call() {
    flags_are_set("read");
}

#[test]
fn injection_makes_no_call_fail() {
    flags_are_set("calls");
}

#[test]
fn interrupted_calls_are_restarted() {
    flags_are_set("events");
}

/// Kinds of threads into which a call can be injected at any time, and kinds where it is possible only
/// between their calls: those wait with a timeout that the kernel keeps, or with a temporary signal mask.
const SUITABLE: [&str; 4] = ["avx", "pipe", "futex", "epoll"];
const MOSTLY_UNSUITABLE: [&str; 5] = ["sleep", "poll", "ppoll", "pselect", "pwait"];

#[test]
fn suitable_threads_keep_registers_and_calls() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else {
        return;
    };
    for kind in SUITABLE {
        let Some(target) = launch(&program, &format!("kind:{kind}")) else {
            return;
        };
        let mut injector = Injector::new(Path::new("/"));
        let (mut count, deadline) = (0, Instant::now() + Duration::from_secs(60));
        while count < 10 {
            for flag in [HugeFlag::NoHugePage, HugeFlag::HugePage] {
                let tid = madvise(&mut injector, &target, flag).unwrap();
                count += u32::from(tid == target.tid);
                assert!(target.has(flag), "{flag:?} by a thread of kind {kind}");
            }
            assert!(
                Instant::now() < deadline,
                "{kind}: only {count} calls by its thread"
            );
        }
        target.intact();
    }
}

#[test]
fn unsuitable_threads_are_not_disturbed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else {
        return;
    };
    for kind in MOSTLY_UNSUITABLE {
        let Some(target) = launch(&program, &format!("kind:{kind}")) else {
            return;
        };
        let mut injector = Injector::new(Path::new("/"));
        for _ in 0..4 {
            match injector.madvise(&target.pidfd, target.pid, target.call(HugeFlag::NoHugePage)) {
                Ok(done) => assert_eq!(done.errno, 0, "{kind}"),
                Err(InjectError::NoSuitableThread { .. }) => {}
                Err(error) => panic!("{kind}: {error}"),
            }
        }
        // The target checks the results of its calls: neither a signal nor our stop may have ended one.
        target.intact();
    }
}

#[test]
fn injection_works_after_main_thread_ended() {
    let Some(target) = start("leaderless") else { return };
    let mut injector = Injector::new(Path::new("/"));
    for flag in [HugeFlag::NoHugePage, HugeFlag::HugePage] {
        assert_eq!(madvise(&mut injector, &target, flag).unwrap(), target.tid);
        assert!(target.has(flag), "{flag:?}");
    }
    target.intact();
}

/// Not a test by itself: the copy that makes one call and dies on the way.
#[test]
fn die_after_request() {
    let Ok(arguments) = std::env::var(DIE_AFTER) else {
        return;
    };
    let numbers: Vec<u64> = arguments.split(' ').map(|word| word.parse().unwrap()).collect();
    let call = Call {
        range: AddrRange::new(numbers[1], numbers[2]),
        flag: HugeFlag::NoHugePage,
    };
    let mut remaining = numbers[3];
    let mut hook = |request: Request| {
        remaining -= 1;
        if remaining == 0 {
            // Stderr is not lost when the process is killed.
            eprintln!("dies after {request:?}");
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    };
    let pid = numbers[0] as u32;
    let pidfd = PidFd::open(pid).unwrap();
    drop(Injector::new(Path::new("/")).madvise_with_hook(&pidfd, pid, call, &mut hook));
    println!("survived");
    std::process::exit(77);
}

/// Lets a copy of this program die after each request in turn, at least once after each of `wanted`. The
/// number of waits for a stop varies, so that one pass may miss a request.
fn die_after_every_request(target: &Target, wanted: &[&str]) {
    let mut died = Vec::new();
    let mut missing = wanted.to_vec();
    for _ in 0..5 {
        died.extend(die_after_each(target));
        missing.retain(|wanted| !died.iter().any(|after| after == wanted));
        if missing.is_empty() {
            return;
        }
    }
    panic!("{missing:?} not in {died:?}");
}

/// One pass. Returns the requests after which the copy died.
fn die_after_each(target: &Target) -> Vec<String> {
    let mut died = Vec::new();
    for nth in 1..=40 {
        let (pid, range) = (target.pid, target.range);
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "die_after_request", "--nocapture", "--test-threads=1"])
            .env(
                DIE_AFTER,
                format!("{pid} {} {} {nth}", range.start.0, range.end.0),
            )
            .output()
            .unwrap();
        if run.status.code() == Some(77) {
            break;
        }
        let stderr = String::from_utf8_lossy(&run.stderr);
        let after = stderr
            .split("dies after ")
            .nth(1)
            .unwrap_or_default()
            .trim()
            .to_owned();
        if after == "SetCall" {
            wait_for("the call of the dead tracer", || target.has(HugeFlag::NoHugePage));
        }
        died.push(after);
        let mut injector = Injector::new(Path::new("/"));
        madvise(&mut injector, target, HugeFlag::HugePage).unwrap();
    }
    died
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        sleep(Duration::from_millis(2));
    }
}

#[test]
fn computing_program_survives_tracer_death() {
    let Some(target) = start("spin") else { return };
    let wanted = [
        "Seize",
        "Interrupt",
        "WriteFrame",
        "SetCall",
        "ToExit",
        "Restore",
        "Detach",
    ];
    die_after_every_request(&target, &wanted);
    target.intact();
}

#[test]
fn waiting_program_survives_tracer_death() {
    let Some(target) = start("read") else { return };
    die_after_every_request(&target, &["SetCall", "InterruptAgain", "Cont", "Restore"]);
    target.intact();
}

#[test]
fn seccomp_filters_are_read_and_never_tried() {
    let Some(target) = start("denies") else { return };
    let mut injector = Injector::new(Path::new("/"));
    let error = injector
        .madvise(&target.pidfd, target.pid, target.call(HugeFlag::NoHugePage))
        .unwrap_err();
    assert!(matches!(error, InjectError::Refused { .. }), "{error}");
    let message = error.to_string();
    // Without the right to read filters, only the first reason is possible.
    let reasons = ["filters that cannot be read", "filters do not allow madvise"];
    assert!(reasons.iter().any(|why| message.contains(why)), "{message}");
    assert!(!target.has(HugeFlag::NoHugePage));
    target.intact();
    let Some(target) = start("allows") else { return };
    match madvise(&mut injector, &target, HugeFlag::NoHugePage) {
        Ok(_) => assert!(target.has(HugeFlag::NoHugePage)),
        Err(InjectError::Refused { why, .. }) if why.contains("cannot be read") => eprintln!("SKIP: {why}"),
        Err(error) => panic!("{error}"),
    }
    target.intact();
}

#[test]
fn traced_and_stopped_programs_are_refused() {
    let Some(target) = start("traced") else { return };
    let refused = Injector::new(Path::new("/"))
        .madvise(&target.pidfd, target.pid, target.call(HugeFlag::NoHugePage))
        .unwrap_err();
    assert!(refused.to_string().contains("already traces it"), "{refused}");
    drop(target);
    let Some(target) = start("read") else { return };
    let pid = rustix::process::Pid::from_raw(target.pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", target.pid)).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    };
    wait_for("the stop", is_stopped);
    let later =
        Injector::new(Path::new("/")).madvise(&target.pidfd, target.pid, target.call(HugeFlag::NoHugePage));
    assert!(
        matches!(later, Err(InjectError::NoSuitableThread { .. })),
        "{later:?}"
    );
    // It was resumed for a moment to be detached.
    wait_for("the renewed stop", is_stopped);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    target.intact();
}

/// A pidfd of a process that has ended.
fn ended() -> PidFd {
    let mut child = Command::new("true").spawn().unwrap();
    let pidfd = PidFd::open(child.id()).unwrap();
    child.wait().unwrap();
    pidfd
}

#[test]
fn process_that_took_over_the_number_is_not_touched() {
    let Some(target) = start("read") else { return };
    let result =
        Injector::new(Path::new("/")).madvise(&ended(), target.pid, target.call(HugeFlag::NoHugePage));
    assert!(matches!(result, Err(InjectError::Gone { .. })), "{result:?}");
    assert!(!target.has(HugeFlag::NoHugePage));
    target.intact();
}

/// Whether the stack of the process holds a signal frame with vector registers.
fn has_frame_on_stack(pid: u32) -> bool {
    /// `FP_XSTATE_MAGIC1` of the kernel.
    const MAGIC: [u8; 4] = 0x4650_5853_u32.to_le_bytes();
    let mappings = maps::read(Path::new("/"), pid).unwrap();
    let stack = mappings.iter().find(|mapping| mapping.name == "[stack]").unwrap();
    let mut bytes = vec![0; usize::try_from(stack.range.len().0).unwrap()];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut bytes, stack.range.start.0).unwrap();
    bytes.windows(4).any(|window| window == MAGIC)
}

/// Another thread executes a program after the stop, which ends the stopped thread and takes over its number.
#[test]
fn program_that_replaced_the_target_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else {
        return;
    };
    let fifo = folder.path().join("tell");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let Some(mut target) = launch(&program, &format!("execs:{}", fifo.display())) else {
        return;
    };
    let (pid, call) = (target.pid, target.call(HugeFlag::NoHugePage));
    let mut line = String::new();
    // Just before the frame is written.
    let mut hook = |request: Request| {
        if request == Request::GetSigmask && line.is_empty() {
            std::fs::write(&fifo, "x").unwrap();
            target.stdout.read_line(&mut line).unwrap();
            // It waits in poll, so that it does not overwrite a frame by itself.
            wait_for("the new program", || {
                std::fs::read_to_string(format!("/proc/{pid}/syscall"))
                    .unwrap()
                    .starts_with("7 ")
            });
        }
    };
    let mut injector = Injector::new(Path::new("/"));
    let result = injector.madvise_with_hook(&target.pidfd, pid, call, &mut hook);
    assert_eq!(line, "replaced\n", "{result:?}");
    assert!(result.is_err(), "{result:?}");
    assert!(!has_frame_on_stack(pid));
}

#[test]
fn invalid_pid_is_reported_gone() {
    let mut injector = Injector::new(Path::new("/"));
    let call = Call {
        range: AddrRange::new(0x1000, 0x2000),
        flag: HugeFlag::NoHugePage,
    };
    assert!(matches!(
        injector.madvise(&ended(), 4_194_304, call),
        Err(InjectError::Gone { .. })
    ));
    // kthreadd has no address space. In a container, process 2 may not exist.
    if let Ok(pidfd) = PidFd::open(2) {
        let refused = injector.madvise(&pidfd, 2, call);
        assert!(refused.is_err(), "{refused:?}");
    }
}
