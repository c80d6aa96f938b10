//! A dry run decides as the run does: for each action, on memory of every kind, and with each guard.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::ops::{Applied, Request, Skip, TargetRange};
use thermo_engine::scheme::{Destination, OpsFilter, OpsFilterKind};
use thermo_engine::{Action, TargetId};
use thermo_kernel::zram::ZramSwap;
use thermo_targets::{Process, Processes};
use thermo_units::{AddrRange, Bytes, Permille};

/// A process with memory of each kind, 4 MiB of it: private, shared with a child, locked, not readable, of a
/// file, never written, in hugetlb pages, of which a program handles the page
/// faults. Prints the start addresses; 0 for a kind that cannot be had.
const TARGET: &str = r#"
import ctypes, fcntl, mmap, os, struct, sys, tempfile
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
SIZE, RW = 4 << 20, mmap.PROT_READ | mmap.PROT_WRITE
def map(flags, fd=-1):
    at = libc.mmap(None, SIZE + (2 << 20), 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    at = (at + (2 << 20) - 1) // (2 << 20) * (2 << 20)
    return at if libc.mmap(at, SIZE, RW, flags | 0x10, fd, 0) == at else 0
def touch(at):
    for n in range(0, SIZE, 4096): ctypes.memset(at + n, 1 + n // 4096 % 255, 1)
anon = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
shared = map(mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
touch(shared)
ready, go = os.pipe()
if os.fork() == 0:
    touch(shared); os.write(go, b"x"); sys.stdin.read(); os._exit(0)
os.read(ready, 1)
private, unreadable, locked = map(anon), map(anon), map(anon)
for at in (private, unreadable, locked):
    libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(SIZE), 15)
    touch(at)
libc.mprotect(ctypes.c_void_p(unreadable), ctypes.c_size_t(SIZE), 0)
if libc.mlock(ctypes.c_void_p(locked), ctypes.c_size_t(SIZE)): locked = 0
data = tempfile.TemporaryFile(dir=os.environ["FOLDER"])
data.write(b"7" * (SIZE + (2 << 20))); data.flush()
file = map(mmap.MAP_SHARED, data.fileno())
touch(file)
uffd = map(anon)
libc.madvise(ctypes.c_void_p(uffd), ctypes.c_size_t(SIZE), 15)
for n in range(0, SIZE, 8192): ctypes.memset(uffd + n, 1, 1)
try:
    # UFFDIO_API and UFFDIO_REGISTER for absent pages.
    fault = libc.syscall(323, os.O_CLOEXEC)
    fcntl.ioctl(fault, 0xc018aa3f, bytearray(struct.pack("QQQ", 0xAA, 0, 0)), True)
    fcntl.ioctl(fault, 0xc020aa00, bytearray(struct.pack("QQQQ", uffd, SIZE, 1, 0)), True)
except OSError:
    uffd = 0
print(private, shared, locked, unreadable, file, map(anon), map(anon | 0x40000 | 0x4000), uffd, flush=True)
sys.stdin.read()
"#;
const KINDS: [&str; 8] = [
    "private",
    "shared",
    "locked",
    "unreadable",
    "file",
    "absent",
    "hugetlb",
    "uffd",
];
const SIZE: u64 = 4 << 20;
const TARGET_ID: TargetId = TargetId(0);

struct Target {
    child: Child,
    ranges: Vec<(&'static str, AddrRange)>,
}

impl Target {
    fn start(folder: &Path) -> Option<Self> {
        let mut command = Command::new("python3");
        command
            .args(["-c", TARGET])
            .env("FOLDER", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(why) => {
                eprintln!("SKIP: the target needs python3: {why}");
                return None;
            }
        };
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let starts = line.split_whitespace().map(|word| word.parse::<u64>().unwrap());
        let ranges: Vec<_> = KINDS.into_iter().zip(starts).collect();
        assert_eq!(ranges.len(), KINDS.len(), "{line}");
        let has = |(_, start): &(&str, u64)| *start > 0;
        let ranges = ranges.into_iter().filter(has);
        let ranges = ranges.map(|(kind, start)| (kind, AddrRange::new(start, start + SIZE)));
        Some(Self {
            child,
            ranges: ranges.collect(),
        })
    }

    fn processes(&self) -> Processes {
        Processes::from([(TARGET_ID, Process::open(TARGET_ID, self.child.id()).unwrap())])
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // The child ends when its input is closed, and its own child with it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The results by kind of memory.
fn results(
    target: &Target,
    (action, limits, filters): (Action, PageoutLimits, &[OpsFilter]),
    dry_run: bool,
) -> Vec<Applied> {
    let ranges: Vec<TargetRange> = target
        .ranges
        .iter()
        .map(|(_, range)| TargetRange {
            target: TARGET_ID,
            range: *range,
        })
        .collect();
    let destinations = [Destination::only(0)];
    let request = Request {
        action,
        ranges: &ranges,
        filters,
        destinations: if action.migrates() { &destinations } else { &[] },
    };
    let mut actor = Actor::new(limits, dry_run);
    match actor.apply(&target.processes(), &request, None) {
        Ok(outcome) => outcome.results,
        Err(why) => {
            eprintln!("SKIP: {action}: {why}");
            Vec::new()
        }
    }
}

fn skipped(applied: &Applied, why: Skip) -> Bytes {
    let found = applied.skipped.iter().find(|(reason, _)| *reason == why);
    found.map_or(Bytes::ZERO, |(_, bytes)| *bytes)
}

/// The bytes acted on, and the bytes by reason for the others.
fn decision(applied: &Applied) -> (Bytes, Vec<(Skip, Bytes)>) {
    let acted = applied.applied + skipped(applied, Skip::DryRun);
    let mut others: Vec<_> = applied.skipped.clone();
    others.retain(|(why, _)| *why != Skip::DryRun);
    others.sort_unstable();
    (acted, others)
}

/// The requests to compare: guards and filters.
fn cases(action: Action) -> Vec<(PageoutLimits, Vec<OpsFilter>)> {
    let floor = |swap_floor| PageoutLimits {
        swap_floor: Permille(swap_floor),
        ..PageoutLimits::default()
    };
    let anon = |allow| OpsFilter {
        kind: OpsFilterKind::Anon,
        matching: true,
        allow,
    };
    let mut cases = vec![
        (floor(0), Vec::new()),
        (floor(0), vec![anon(false)]),
        (floor(0), vec![anon(true)]),
    ];
    if action == Action::Pageout {
        cases.push((floor(1001), Vec::new()));
    }
    cases
}

/// Compares a dry run with a run of each action. False where nothing can be advised.
fn compare(folder: &Path, actions: &[Action]) -> bool {
    for action in actions {
        for (limits, filters) in cases(*action) {
            let Some(target) = Target::start(folder) else {
                return false;
            };
            let request = (*action, limits, &filters[..]);
            let dry = results(&target, request, true);
            let run = results(&target, request, false);
            let is_refused = |applied: &Applied| skipped(applied, Skip::NotPermitted) > Bytes::ZERO;
            if run.iter().any(is_refused) {
                eprintln!("SKIP: memory of other processes cannot be advised here: {run:?}");
                return false;
            }
            for (((kind, _), dry), run) in target.ranges.iter().zip(&dry).zip(&run) {
                let what = format!("{action} on {kind} memory, {limits:?}, {filters:?}:\n{dry:?}\n{run:?}");
                assert_eq!((dry.applied, dry.changed), (Bytes::ZERO, None), "{what}");
                assert_eq!(decision(dry), decision(run), "{what}");
            }
        }
    }
    true
}

#[test]
fn dry_run_decides_as_the_run() {
    let folder = tempfile::tempdir().unwrap();
    // Without swap of our own, paging out may have none.
    if !compare(folder.path(), &Action::ALL) {
        return;
    }
    match ZramSwap::create(Path::new("/"), Bytes::mib(64)) {
        Ok(swap) => {
            compare(folder.path(), &[Action::Pageout, Action::Willneed]);
            swap.remove().unwrap();
        }
        Err(why) => eprintln!("SKIP: swap on zram cannot be created: {why}"),
    }
}

#[test]
fn userfaultfd_memory_is_not_said_to_need_root() {
    let folder = tempfile::tempdir().unwrap();
    let Some(target) = Target::start(folder.path()) else {
        return;
    };
    for dry_run in [true, false] {
        for action in [Action::Hugepage, Action::Collapse] {
            let results = results(&target, (action, PageoutLimits::default(), &[]), dry_run);
            let kinds = target.ranges.iter().zip(&results);
            let Some((_, uffd)) = kinds.into_iter().find(|((kind, _), _)| *kind == "uffd") else {
                return eprintln!("SKIP: this machine has no userfaultfd");
            };
            if skipped(uffd, Skip::NotPermitted) > Bytes::ZERO {
                return eprintln!("SKIP: memory of other processes cannot be advised here: {uffd:?}");
            }
            // Half of the pages are present: too few for `collapse`.
            let why = match action {
                Action::Hugepage => Skip::Userfaultfd,
                _ => Skip::NotPresent,
            };
            assert_eq!(
                (skipped(uffd, why), &uffd.error),
                (Bytes(SIZE), &None),
                "{uffd:?}"
            );
        }
    }
}

#[test]
fn dry_run_says_why_shared_and_locked_memory_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let Some(target) = Target::start(folder.path()) else {
        return;
    };
    let cold = results(&target, (Action::Cold, PageoutLimits::default(), &[]), true);
    if skipped(&cold[0], Skip::NotPermitted) > Bytes::ZERO {
        return eprintln!("SKIP: memory of other processes cannot be advised here");
    }
    let read = results(&target, (Action::LruPrio, PageoutLimits::default(), &[]), true);
    for (((kind, _), cold), read) in target.ranges.iter().zip(&cold).zip(&read) {
        let why = match *kind {
            "shared" => Skip::Shared,
            "locked" => Skip::Locked,
            "absent" => Skip::NotPresent,
            "hugetlb" | "uffd" => continue,
            _ => Skip::DryRun,
        };
        assert_eq!(skipped(cold, why), Bytes(SIZE), "{kind}: {cold:?}");
        if *kind == "unreadable" {
            assert_eq!(skipped(read, Skip::Unreadable), Bytes(SIZE), "{read:?}");
        }
    }
}
