//! Calls that other processes are made to make: the flag is set, and nothing else is changed, whatever becomes of us.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![cfg(target_arch = "x86_64")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use thermo_inject::{Call, HugeFlag, InjectError, Injector, Request};
use thermo_kernel::{smaps, thp};
use thermo_units::AddrRange;

/// Told to the copy of this program that dies: target, range, and after which request.
const DIES: &str = "THERMO_TEST_INJECT_AND_DIE";

/// The program of `targets/registers.c`.
struct Target {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pid: u32,
    range: AddrRange,
    /// The thread that looks at its registers.
    tid: u32,
}

/// Makes it in `folder`, or says why it cannot be made.
fn compile(folder: &Path) -> Option<PathBuf> {
    if thp::read(Path::new("/")).unwrap().is_none() {
        eprintln!("SKIP: this kernel has no transparent huge pages, so there are no flags for them");
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
        eprintln!("SKIP: there is no C compiler (cc) to make the target");
        return None;
    }
    assert!(compiled.unwrap().success(), "{source} does not compile");
    Some(program)
}

/// Makes and starts it, or says why it cannot be.
fn start(mode: &str) -> Option<Target> {
    let folder = tempfile::tempdir().unwrap();
    launch(&compile(folder.path())?, mode)
}

/// Starts it, unless it may not be traced.
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
    let target = Target {
        child,
        stdout,
        pid: words[1].parse().unwrap(),
        range: AddrRange::new(hex(2), hex(3)),
        tid: words[4].parse().unwrap(),
    };
    target.may_be_traced().then_some(target)
}

impl Target {
    fn may_be_traced(&self) -> bool {
        let call = self.call(HugeFlag::HugePage);
        match Injector::new(Path::new("/")).madvise(self.pid, call) {
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
        // The first thread may have ended: then there are no mappings to be seen by it.
        let vmas = smaps::read(Path::new("/"), self.tid).unwrap();
        let within = |vma: &&smaps::Vma| vma.mapping.range.intersection(&self.range).is_some();
        let mut vmas = vmas.iter().filter(within).peekable();
        vmas.peek().is_some() && vmas.all(|vma| vma.has_flag(flag.letters()))
    }

    /// Ends it, and asks what it found.
    fn intact(mut self) {
        self.child.stdin.take().unwrap().write_all(b"q").unwrap();
        let mut said = String::new();
        self.stdout.read_line(&mut said).unwrap();
        assert!(said.starts_with("intact "), "{said:?}, {:?}", self.child.wait());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended; nothing else can go wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The machine is busy: no thread may have been fit for a while. Returns the thread that made the call.
fn madvise(injector: &mut Injector, target: &Target, flag: HugeFlag) -> Result<u32, InjectError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match injector.madvise(target.pid, target.call(flag)) {
            Ok(done) => {
                assert_eq!(done.errno, 0);
                return Ok(done.tid);
            }
            Err(InjectError::NoFitThread { .. }) if Instant::now() < deadline => {}
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
fn a_program_that_computes_keeps_every_register() {
    flags_are_set("spin");
}

#[test]
fn a_program_that_waits_keeps_every_register_and_its_call() {
    flags_are_set("read");
}

#[test]
fn no_call_of_a_program_fails_that_would_not_have() {
    flags_are_set("calls");
}

#[test]
fn calls_that_a_stop_breaks_are_made_again() {
    flags_are_set("events");
}

/// Kinds of threads that a call can be put before whatever they are doing, and such that can be taken only between
/// their calls: those have an end that the kernel keeps, or a signal mask of their own.
const FIT: [&str; 4] = ["avx", "pipe", "futex", "epoll"];
const HARDLY_FIT: [&str; 5] = ["sleep", "poll", "ppoll", "pselect", "pwait"];

#[test]
fn each_kind_of_thread_keeps_its_registers_and_its_call() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else {
        return;
    };
    for kind in FIT {
        let Some(target) = launch(&program, &format!("kind:{kind}")) else {
            return;
        };
        let mut injector = Injector::new(Path::new("/"));
        let (mut by_it, deadline) = (0, Instant::now() + Duration::from_secs(60));
        while by_it < 10 {
            for flag in [HugeFlag::NoHugePage, HugeFlag::HugePage] {
                let tid = madvise(&mut injector, &target, flag).unwrap();
                by_it += u32::from(tid == target.tid);
                assert!(target.has(flag), "{flag:?} by a thread of the kind {kind}");
            }
            assert!(Instant::now() < deadline, "{kind}: only {by_it} calls by it");
        }
        target.intact();
    }
}

#[test]
fn threads_that_cannot_be_disturbed_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else {
        return;
    };
    for kind in HARDLY_FIT {
        let Some(target) = launch(&program, &format!("kind:{kind}")) else {
            return;
        };
        let mut injector = Injector::new(Path::new("/"));
        for _ in 0..4 {
            match injector.madvise(target.pid, target.call(HugeFlag::NoHugePage)) {
                Ok(done) => assert_eq!(done.errno, 0, "{kind}"),
                Err(InjectError::NoFitThread { .. }) => {}
                Err(error) => panic!("{kind}: {error}"),
            }
        }
        // It looks at what its calls answered: no signal, and no stop of ours, may have ended one.
        target.intact();
    }
}

#[test]
fn a_process_whose_first_thread_has_ended_is_one_like_any_other() {
    let Some(target) = start("leaderless") else { return };
    let mut injector = Injector::new(Path::new("/"));
    for flag in [HugeFlag::NoHugePage, HugeFlag::HugePage] {
        assert_eq!(madvise(&mut injector, &target, flag).unwrap(), target.tid);
        assert!(target.has(flag), "{flag:?}");
    }
    target.intact();
}

/// Not a test by itself: makes one call, and dies on the way.
#[test]
fn dies() {
    let Ok(told) = std::env::var(DIES) else { return };
    let numbers: Vec<u64> = told.split(' ').map(|word| word.parse().unwrap()).collect();
    let call = Call {
        range: AddrRange::new(numbers[1], numbers[2]),
        flag: HugeFlag::NoHugePage,
    };
    let mut left = numbers[3];
    let mut watch = |request: Request| {
        left -= 1;
        if left == 0 {
            // Standard error is not captured in a process that is killed.
            eprintln!("dies after {request:?}");
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    };
    drop(Injector::new(Path::new("/")).madvise_watched(numbers[0] as u32, call, &mut watch));
    println!("lived");
    std::process::exit(77);
}

/// Has a copy of this program die after each request in turn, among them those that are `wanted`. How often a stop is waited
/// for differs from one to the next, so that one pass may step over a request.
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

/// One pass. Returns after which requests it was dead.
fn die_after_each(target: &Target) -> Vec<String> {
    let mut died = Vec::new();
    for nth in 1..=40 {
        let (pid, range) = (target.pid, target.range);
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "dies", "--nocapture", "--test-threads=1"])
            .env(DIES, format!("{pid} {} {} {nth}", range.start.0, range.end.0))
            .output()
            .unwrap();
        if run.status.code() == Some(77) {
            break;
        }
        let said = String::from_utf8_lossy(&run.stderr);
        let after = said
            .split("dies after ")
            .nth(1)
            .unwrap_or_default()
            .trim()
            .to_owned();
        if after == "SetCall" {
            wait_for("the call of a tracer that is dead", || {
                target.has(HugeFlag::NoHugePage)
            });
        }
        died.push(after);
        let mut injector = Injector::new(Path::new("/"));
        madvise(&mut injector, target, HugeFlag::HugePage).unwrap();
    }
    died
}

fn wait_for(what: &str, mut come: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !come() {
        assert!(Instant::now() < deadline, "{what} was not made");
        sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_program_that_computes_goes_on_whenever_its_tracer_dies() {
    let Some(target) = start("spin") else { return };
    let wanted = [
        "Seize",
        "Interrupt",
        "WriteFrame",
        "SetCall",
        "ToEnd",
        "SetBack",
        "Detach",
    ];
    die_after_every_request(&target, &wanted);
    target.intact();
}

#[test]
fn a_program_that_waits_goes_on_whenever_its_tracer_dies() {
    let Some(target) = start("read") else { return };
    die_after_every_request(&target, &["SetCall", "InterruptAgain", "GoOn", "SetBack"]);
    target.intact();
}

#[test]
fn filters_are_read_and_never_tried() {
    let Some(target) = start("denies") else { return };
    let mut injector = Injector::new(Path::new("/"));
    let refused = injector
        .madvise(target.pid, target.call(HugeFlag::NoHugePage))
        .unwrap_err();
    assert!(matches!(refused, InjectError::Refused { .. }), "{refused}");
    let said = refused.to_string();
    // Without the right to read filters there is nothing but that to be said.
    let reasons = ["filters that cannot be read", "filters do not allow madvise"];
    assert!(reasons.iter().any(|why| said.contains(why)), "{said}");
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
fn a_traced_program_and_a_stopped_one_are_left_alone() {
    let Some(target) = start("traced") else { return };
    let refused = Injector::new(Path::new("/"))
        .madvise(target.pid, target.call(HugeFlag::NoHugePage))
        .unwrap_err();
    assert!(refused.to_string().contains("traces it already"), "{refused}");
    drop(target);
    let Some(target) = start("read") else { return };
    let pid = rustix::process::Pid::from_raw(target.pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", target.pid)).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    };
    wait_for("the stop", is_stopped);
    let later = Injector::new(Path::new("/")).madvise(target.pid, target.call(HugeFlag::NoHugePage));
    assert!(matches!(later, Err(InjectError::NoFitThread { .. })), "{later:?}");
    // It woke for a moment to be let go of.
    wait_for("the stop that goes on", is_stopped);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    target.intact();
}

#[test]
fn what_is_no_process_is_gone() {
    let mut injector = Injector::new(Path::new("/"));
    let call = Call {
        range: AddrRange::new(0x1000, 0x2000),
        flag: HugeFlag::NoHugePage,
    };
    assert!(matches!(
        injector.madvise(4_194_304, call),
        Err(InjectError::Gone { .. })
    ));
    // kthreadd has no memory. In a container there may be no process 2.
    let refused = injector.madvise(2, call);
    assert!(refused.is_err(), "{refused:?}");
}
