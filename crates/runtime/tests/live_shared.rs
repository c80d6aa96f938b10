//! Looking at memory that several processes map, and at locked memory.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::look::{count, pages, scan, scanning};
use common::{repeat_until_good, tracker};
use rustix::process::{Pid, Signal, kill_process};
use thermo_backends::Tracker as _;
use thermo_engine::scan::PageSeen;
use thermo_engine::{Event, Next, Region, TargetId};
use thermo_kernel::clock;
use thermo_targets::{Process, Processes};
use thermo_units::{Addr, AddrRange, Nanos};

#[test]
fn child() {
    common::live_as_child();
}

/// Two processes that share 64 MiB, all of it touched once by both. The one touches the first quarter on and on, the
/// other the second. Both end with their standard input.
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
        // They end by themselves when nothing holds their standard input open.
        let _ = self.child.wait();
    }
}

/// Sweeps until the regions of all targets are as `wanted`.
fn sweep_until(
    pids: &[u32],
    longest_walk: Option<Nanos>,
    mut wanted: impl FnMut(&[Vec<Region>], &[String]) -> Result<(), String>,
) {
    let Some(mut tracker) = common::tracker() else {
        return;
    };
    if let Some(longest) = longest_walk {
        assert!(tracker.walk_shared(longest));
    }
    let (mut context, mut ops) = scanning(pids, tracker);
    let mut warnings = Vec::new();
    repeat_until_good(|| {
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
                panic!("the targets live")
            };
            let rest = next.saturating_sub(clock::monotonic());
            std::thread::sleep(Duration::from_nanos(rest.0));
        }
        wanted(&regions.unwrap(), &warnings)
    });
}

/// What is known of all of `range`: the least and the most `nr_accesses`, and whether none of it is unknown.
fn known(regions: &[Region], range: AddrRange) -> (u32, u32, bool) {
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

/// Inside of `range`, away from its borders, which regions may be joined over.
fn inside(range: AddrRange) -> AddrRange {
    const MARGIN: u64 = 2 << 20;
    AddrRange {
        start: Addr(range.start.0 + MARGIN),
        end: Addr(range.end.0 - MARGIN),
    }
}

#[test]
fn what_one_sharer_touches_is_touched_in_both() {
    let Some(sharers) = Sharers::start() else { return };
    let touched = inside(sharers.quarters(0, 2));
    let idle = inside(sharers.quarters(2, 4));
    sweep_until(&sharers.pids, Some(Nanos::secs(60)), |regions, _| {
        let as_wanted = regions.len() == 2
            && regions.iter().all(|regions| {
                let (least, _, touched_known) = known(regions, touched);
                let (_, most, idle_known) = known(regions, idle);
                touched_known && idle_known && least >= 30 && most == 0
            });
        if as_wanted {
            Ok(())
        } else {
            Err(format!("{regions:?}"))
        }
    });
}

#[test]
fn without_consent_and_where_it_would_take_too_long_shared_memory_is_unknown() {
    let Some(sharers) = Sharers::start() else { return };
    let touched = inside(sharers.quarters(0, 1));
    for (longest_walk, told) in [(None, false), (Some(Nanos(1000)), true)] {
        sweep_until(&sharers.pids[..1], longest_walk, |regions, warnings| {
            let is_unknown = regions.first().is_some_and(|regions| !known(regions, touched).2);
            let was_told = warnings.iter().any(|text| text.contains("--max-walk"));
            if is_unknown && was_told == told {
                Ok(())
            } else {
                Err(format!("{regions:?} {warnings:?}"))
            }
        });
    }
}

#[test]
fn what_is_not_shared_any_more_is_told_of_again() {
    let Some(sharers) = Sharers::start() else { return };
    let parent = sharers.child.id();
    // The parent's part. All of it was touched by both.
    let touched = inside(sharers.quarters(0, 1));
    let mut other = sharers.pids.iter().copied().filter(|pid| *pid != parent);
    let mut pictures = 0;
    sweep_until(&[parent], None, |regions, _| {
        pictures += 1;
        let (least, _, is_known) = known(&regions[0], touched);
        // The second picture is the first that tells anything.
        if pictures >= 2
            && !is_known
            && let Some(other) = other.next().and_then(|pid| Pid::from_raw(pid.cast_signed()))
        {
            kill_process(other, Signal::KILL).unwrap();
        }
        if is_known && least >= 30 {
            Ok(())
        } else {
            Err(format!("{regions:?}"))
        }
    });
    assert!(pictures > 2 && other.next().is_none(), "it was shared at first");
}

#[test]
fn locked_memory_is_walked_too() {
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
    let (touched, idle) = (inside(locked.quarters(0, 1)), inside(locked.quarters(1, 4)));
    sweep_until(&locked.pids, Some(Nanos::secs(60)), |regions, _| {
        let regions = regions.first().map_or(&[][..], Vec::as_slice);
        let ((least, _, _), (_, most, known)) = (known(regions, touched), known(regions, idle));
        if least >= 30 && most == 0 && known {
            Ok(())
        } else {
            Err(format!("{regions:?}"))
        }
    });
}

/// Locks the first page of 32 MiB, and touches all of them for each line it reads.
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
fn a_locked_page_hides_nothing_behind_it() {
    let Some(mut tracker) = tracker() else { return };
    let mut command = Command::new("python3");
    command.args(["-c", LOCKS_A_PAGE]);
    let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        eprintln!("SKIP: there is no python3");
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
    repeat_until_good(|| {
        writeln!(input, "touch").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "done");
        let touched = scan(&mut tracker, &processes, all);
        let idle = scan(&mut tracker, &processes, all);
        let found = (
            count(&touched, all, PageSeen::Accessed),
            count(&touched, all, PageSeen::Unknown),
            count(&idle, all, PageSeen::Idle),
        );
        if found == (pages(all) - 1, 1, pages(all) - 1) {
            return Ok(());
        }
        Err(format!(
            "of {} pages: touched, unknown, then idle {found:?}",
            pages(all)
        ))
    });
    // It ends with its input.
    drop(input);
    child.wait().unwrap();
}
