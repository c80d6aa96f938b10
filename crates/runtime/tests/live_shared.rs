//! Monitoring of shared and of locked memory.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::access::{count, pages, scan, scanning};
use common::{retry, tracker};
use rustix::process::{Pid, Signal, kill_process};
use thermo_backends::Tracker as _;
use thermo_engine::scan::ScanResult;
use thermo_engine::{Event, Next, Region, TargetId};
use thermo_kernel::clock;
use thermo_targets::{Process, Processes};
use thermo_units::{Addr, AddrRange, Nanos};

#[test]
fn child() {
    common::run_if_child();
}

/// Two processes that share 64 MiB. Both access all of it once. Then one accesses the first quarter again and
/// again, the other the second quarter. Both end when their standard input is closed.
const SHARERS: &str = r#"
import ctypes, mmap, os, select, sys
size = 64 << 20
memory = mmap.mmap(-1, size)
other = os.fork()
for at in range(0, size, 4096):
    memory[at:at + 1] = b"x"
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
os.write(1, f"{os.getpid()} {address}\n".encode())
first = size // 4 if other == 0 else 0
while not select.select([sys.stdin], [], [], 0.02)[0]:
    for at in range(first, first + size // 4, 4096):
        memory[at]
"#;
const SIZE: u64 = 64 << 20;

struct Sharers {
    child: Child,
    pids: Vec<u32>,
    range: AddrRange,
}

impl Sharers {
    fn start() -> Option<Self> {
        let mut child = Command::new("python3")
            .args(["-c", SHARERS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .inspect_err(|why| eprintln!("SKIP: python3 cannot be started: {why}"))
            .ok()?;
        let mut lines = BufReader::new(child.stdout.take()?).lines();
        let (mut pids, mut start) = (Vec::new(), 0);
        while pids.len() < 2 {
            let line = lines.next().unwrap().unwrap();
            let (pid, address) = line.split_once(' ').unwrap();
            pids.push(pid.parse().unwrap());
            start = address.parse().unwrap();
        }
        Some(Self {
            child,
            pids,
            range: AddrRange::new(start, start + SIZE),
        })
    }

    /// A part of the shared memory, in quarters.
    fn quarters(&self, from: u64, to: u64) -> AddrRange {
        let at = |nth| self.range.start.0 + nth * SIZE / 4;
        AddrRange::new(at(from), at(to))
    }
}

impl Drop for Sharers {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The processes end when their standard input is closed.
        let _ = self.child.wait();
    }
}

/// Scans until `check` accepts the regions of all targets and the warnings.
fn scan_until(
    pids: &[u32],
    longest_walk: Option<Nanos>,
    mut check: impl FnMut(&[Vec<Region>], &[String]) -> Result<(), String>,
) {
    let Some(mut tracker) = common::tracker() else {
        return;
    };
    if let Some(longest) = longest_walk {
        assert!(tracker.enable_shared_walks(longest));
    }
    let (mut context, mut ops) = scanning(pids, tracker);
    let mut warnings = Vec::new();
    retry(|| {
        let mut regions: Option<Vec<Vec<Region>>> = None;
        while regions.is_none() {
            let mut sink = |event: &Event<'_>| match event {
                Event::Aggregated { targets, .. } => {
                    regions = Some(targets.iter().map(|target| target.regions.to_vec()).collect());
                }
                Event::Warning { text, .. } => warnings.push((*text).to_owned()),
                _ => {}
            };
            let Next::At(next) = context.step(clock::monotonic(), &mut ops, &mut sink).unwrap() else {
                panic!("the targets are alive")
            };
            let wait = next.saturating_sub(clock::monotonic());
            std::thread::sleep(Duration::from_nanos(wait.0));
        }
        check(&regions.unwrap(), &warnings)
    });
}

/// Minimum and maximum `nr_accesses` in `range`, and whether all of `range` is known.
fn accesses_in(regions: &[Region], range: AddrRange) -> (u32, u32, bool) {
    let within: Vec<&Region> = regions
        .iter()
        .filter(|region| region.range.overlaps(&range))
        .collect();
    let counts = || within.iter().map(|region| region.nr_accesses);
    (
        counts().min().unwrap_or(0),
        counts().max().unwrap_or(0),
        within.iter().all(|region| !region.unknown),
    )
}

/// `range` without its borders, over which regions may be merged.
fn inside(range: AddrRange) -> AddrRange {
    const MARGIN: u64 = 2 << 20;
    AddrRange {
        start: Addr(range.start.0 + MARGIN),
        end: Addr(range.end.0 - MARGIN),
    }
}

#[test]
fn access_by_one_process_counts_in_both() {
    let Some(sharers) = Sharers::start() else { return };
    let accessed = inside(sharers.quarters(0, 2));
    let idle = inside(sharers.quarters(2, 4));
    scan_until(&sharers.pids, Some(Nanos::secs(60)), |regions, _| {
        let is_expected = regions.len() == 2
            && regions.iter().all(|regions| {
                let (min, _, accessed_known) = accesses_in(regions, accessed);
                let (_, max, idle_known) = accesses_in(regions, idle);
                accessed_known && idle_known && min >= 30 && max == 0
            });
        if is_expected {
            Ok(())
        } else {
            Err(format!("{regions:?}"))
        }
    });
}

#[test]
fn shared_memory_is_unknown_without_walk() {
    let Some(sharers) = Sharers::start() else { return };
    let accessed = inside(sharers.quarters(0, 1));
    for (longest_walk, expect_warning) in [(None, false), (Some(Nanos(1000)), true)] {
        scan_until(&sharers.pids[..1], longest_walk, |regions, warnings| {
            let is_unknown = regions
                .first()
                .is_some_and(|regions| !accesses_in(regions, accessed).2);
            let has_warning = warnings.iter().any(|text| text.contains("--max-walk"));
            if is_unknown && has_warning == expect_warning {
                Ok(())
            } else {
                Err(format!("{regions:?} {warnings:?}"))
            }
        });
    }
}

#[test]
fn memory_is_known_again_after_the_sharer_ends() {
    let Some(sharers) = Sharers::start() else { return };
    let parent = sharers.child.id();
    // The part that the parent accesses. Both processes accessed it once.
    let accessed = inside(sharers.quarters(0, 1));
    let mut other = sharers.pids.iter().copied().filter(|pid| *pid != parent);
    let mut snapshots = 0;
    scan_until(&[parent], None, |regions, _| {
        snapshots += 1;
        let (min, _, is_known) = accesses_in(&regions[0], accessed);
        // The second snapshot is the first one with known accesses.
        if snapshots >= 2
            && !is_known
            && let Some(other) = other.next().and_then(|pid| Pid::from_raw(pid.cast_signed()))
        {
            kill_process(other, Signal::KILL).unwrap();
        }
        if is_known && min >= 30 {
            Ok(())
        } else {
            Err(format!("{regions:?}"))
        }
    });
    assert!(snapshots > 2 && other.next().is_none(), "it was shared at first");
}

#[test]
fn locked_memory_is_monitored_by_walks() {
    const LOCKED: &str = r#"
import ctypes, mmap, os, select, sys
memory = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
libc = ctypes.CDLL(None, use_errno=True)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(64 << 20)):
    sys.exit(os.strerror(ctypes.get_errno()))
os.write(1, f"{os.getpid()} {address}\n".encode())
while not select.select([sys.stdin], [], [], 0.02)[0]:
    for at in range(0, 16 << 20, 4096):
        memory[at]
"#;
    let child = Command::new("python3")
        .args(["-c", LOCKED])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIP: python3 cannot be started");
        return;
    };
    let line = BufReader::new(child.stdout.take().unwrap()).lines().next();
    let Some(Ok(line)) = line else {
        eprintln!("SKIP: memory cannot be locked here");
        let _ = child.wait();
        return;
    };
    let (pid, address) = line.split_once(' ').unwrap();
    let start: u64 = address.parse().unwrap();
    let locked = Sharers {
        child,
        pids: vec![pid.parse().unwrap()],
        range: AddrRange::new(start, start + SIZE),
    };
    let (accessed, idle) = (inside(locked.quarters(0, 1)), inside(locked.quarters(1, 4)));
    scan_until(&locked.pids, Some(Nanos::secs(60)), |regions, _| {
        let regions = regions.first().map_or(&[][..], Vec::as_slice);
        let (min, _, _) = accesses_in(regions, accessed);
        let (_, max, idle_known) = accesses_in(regions, idle);
        if min >= 30 && max == 0 && idle_known {
            Ok(())
        } else {
            Err(format!("{regions:?}"))
        }
    });
}

/// Locks the first page of 32 MiB, and writes to all pages for each line on its standard input.
const LOCKS_A_PAGE: &str = "
import ctypes, mmap, sys
memory = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
locked = ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t(4096))
print(address if locked == 0 else 0, flush=True)
for line in sys.stdin:
    for page in range(0, 32 << 20, 4096):
        memory[page] = 1
    print('done', flush=True)
";

#[test]
fn pages_after_a_locked_page_are_found() {
    let Some(mut tracker) = tracker() else { return };
    let mut command = Command::new("python3");
    command.args(["-c", LOCKS_A_PAGE]);
    let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        eprintln!("SKIP: python3 is not installed");
        return;
    };
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let start: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    if start == 0 {
        eprintln!("SKIP: memory cannot be locked here");
        return;
    }
    let id = TargetId(0);
    let processes = Processes::from([(id, Process::open(id, child.id()).unwrap())]);
    let all = AddrRange::new(start, start + (32 << 20));
    retry(|| {
        writeln!(input, "touch").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "done");
        let first = scan(&mut tracker, &processes, all);
        let second = scan(&mut tracker, &processes, all);
        let found = (
            count(&first, all, ScanResult::Accessed),
            count(&first, all, ScanResult::Unknown),
            count(&second, all, ScanResult::Idle),
        );
        if found == (pages(all) - 1, 1, pages(all) - 1) {
            return Ok(());
        }
        Err(format!(
            "of {} pages: accessed, unknown, then idle {found:?}",
            pages(all)
        ))
    });
    // The child ends when its standard input is closed.
    drop(input);
    child.wait().unwrap();
}
