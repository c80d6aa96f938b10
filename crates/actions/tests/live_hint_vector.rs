//! One call with ten thousand hints for three processes, including memory for which the kernel refuses
//! advice.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use thermo_actions::hint::{Hint, HintResult, Hinter, Limits, SkipReason};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::ops::Skip;
use thermo_engine::{Action, TargetId};
use thermo_targets::{Process, Processes};
use thermo_units::{AddrRange, Bytes, PAGE_SIZE};

/// A process with private memory that has a hole. The argument adds locked memory, hugetlb pages, or memory
/// shared with a child. Prints the start addresses.
const TARGET: &str = r#"
import ctypes, mmap, os, sys
size, kind = 14 << 20, sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
def map(size, flags):
    at = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags | mmap.MAP_ANONYMOUS, -1, 0)
    return 0 if at in (None, ctypes.c_void_p(-1).value) else at
def touch(at, size):
    for n in range(0, size, 4096): ctypes.memset(at + n, 1 + n // 4096 % 255, 1)
private = map(size, mmap.MAP_PRIVATE)
libc.madvise(ctypes.c_void_p(private), ctypes.c_size_t(size), 15)
libc.madvise(ctypes.c_void_p(private), ctypes.c_size_t(size), 10)
touch(private, size)
hole = private + size // 2
libc.munmap(ctypes.c_void_p(hole), ctypes.c_size_t(65536))
other, length = 0, 4 << 20
if kind == "locked":
    other = map(length, mmap.MAP_PRIVATE); touch(other, length)
    if libc.mlock(ctypes.c_void_p(other), ctypes.c_size_t(length)): other = 0
elif kind == "hugetlb":
    other = map(length, mmap.MAP_PRIVATE | 0x40000 | 0x4000)
else:
    other = map(length, mmap.MAP_SHARED); touch(other, length)
    ready, go = os.pipe()
    if os.fork() == 0:
        touch(other, length); os.write(go, b"x"); sys.stdin.read(); os._exit(0)
    os.read(ready, 1)
print(private, hole, other, flush=True)
sys.stdin.read()
"#;

const PRIVATE: u64 = 14 << 20;
const OTHER: u64 = 4 << 20;
const HOLE: u64 = 65536;

struct Target {
    child: Child,
    private: u64,
    hole: u64,
    other: u64,
}

impl Target {
    fn start(kind: &str) -> Option<Self> {
        let mut command = Command::new("python3");
        command
            .args(["-c", TARGET, kind])
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
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        let [private, hole, other] = numbers[..] else {
            panic!("{line:?}")
        };
        Some(Self {
            child,
            private,
            hole,
            other,
        })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // The forked child ends when its standard input closes.
        drop((self.child.kill(), self.child.wait()));
    }
}

fn skipped(result: &HintResult) -> Bytes {
    result.skipped.iter().map(|(_, bytes)| *bytes).sum()
}

fn skipped_for(result: &HintResult, why: Skip) -> bool {
    result
        .skipped
        .iter()
        .any(|(reason, _)| *reason == SkipReason::Skip(why))
}

#[test]
fn hint_vector_has_correct_result_per_range() {
    let kinds = ["locked", "hugetlb", "shared"];
    let Some(targets) = kinds
        .map(Target::start)
        .into_iter()
        .collect::<Option<Vec<Target>>>()
    else {
        return;
    };
    let mut processes = Processes::new();
    for (target, id) in targets.iter().zip(0..) {
        processes.insert(
            TargetId(id),
            Process::open(TargetId(id), target.child.id()).unwrap(),
        );
    }
    let actions = [Action::Cold, Action::Pageout, Action::LruPrio, Action::Willneed];
    let mut hints = Vec::new();
    for (target, id) in targets.iter().zip(0..) {
        let target_id = TargetId(id);
        for (nth, start) in (target.private..target.private + PRIVATE)
            .step_by(PAGE_SIZE as usize)
            .enumerate()
        {
            let range = AddrRange::new(start, start + PAGE_SIZE);
            hints.push(Hint {
                target: target_id,
                range,
                action: actions[nth % 4],
            });
        }
        for action in [Action::Cold, Action::Pageout]
            .into_iter()
            .filter(|_| target.other != 0)
        {
            let range = AddrRange::new(target.other, target.other + OTHER);
            hints.push(Hint {
                target: target_id,
                range,
                action,
            });
        }
    }
    assert!(hints.len() > 10_000, "{}", hints.len());
    let results =
        Hinter::new(Actor::new(PageoutLimits::default(), false), Limits::default()).give(&processes, &hints);
    if results
        .iter()
        .any(|result| skipped_for(result, Skip::NotPermitted))
    {
        eprintln!(
            "SKIP: other processes' memory cannot be advised here: {:?}",
            results[0].error
        );
        return;
    }
    let has_swap = std::fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1;
    let (mut valid, mut done) = (0, 0);
    let mut not_done = std::collections::BTreeMap::new();
    for (hint, result) in hints.iter().zip(&results) {
        let target = &targets[hint.target.0 as usize];
        assert_eq!(
            result.advised + skipped(result),
            hint.range.len(),
            "{hint:?}: {result:?}"
        );
        if hint.action == Action::Pageout && !has_swap {
            // Without swap, no private memory is paged out.
            assert_eq!(result.advised, Bytes::ZERO, "{hint:?}: {result:?}");
        } else if skipped_for(result, Skip::SwapFloor) {
            assert_eq!(hint.action, Action::Pageout, "{result:?}");
        } else if hint.range.start.0 == target.other {
            let why = [Skip::Locked, Skip::Unadvisable, Skip::Shared][hint.target.0 as usize];
            assert!(
                result.advised == Bytes::ZERO && skipped_for(result, why),
                "{hint:?}: {result:?}"
            );
            assert_eq!(
                result.error.is_some(),
                why != Skip::Shared,
                "{hint:?}: {result:?}"
            );
        } else if (target.hole..target.hole + HOLE).contains(&hint.range.start.0) {
            assert_eq!(result.advised, Bytes::ZERO, "{hint:?}: {result:?}");
            assert!(skipped_for(result, Skip::NotPresent), "{hint:?}: {result:?}");
        } else {
            valid += 1;
            let is_done = result.advised == Bytes(PAGE_SIZE) || skipped_for(result, Skip::Resident);
            done += usize::from(is_done);
            if !is_done {
                let key = format!("{:?} {} {:?}", hint.target, hint.action, result.skipped);
                *not_done.entry(key).or_insert(0) += 1;
            }
        }
    }
    // The kernel may have reclaimed some pages meanwhile.
    assert!(
        done > valid * 9 / 10 && valid > 7000,
        "{done} of {valid}: {not_done:?}"
    );
}

#[test]
fn neighbours_of_refused_ranges_keep_their_own_results() {
    for (kind, why) in [("locked", Skip::Locked), ("shared", Skip::Shared)] {
        let Some(target) = Target::start(kind) else { return };
        let id = TargetId(0);
        let processes = Processes::from([(id, Process::open(id, target.child.id()).unwrap())]);
        // Sorted by address, because the mappings may be adjacent. 12 pages do not end where the hole ends.
        let mut parts = [(target.private, PRIVATE), (target.other, OTHER)];
        parts.sort_unstable();
        let pieces = parts
            .into_iter()
            .filter(|(start, _)| *start != 0)
            .flat_map(|(start, len)| {
                let end = start + len;
                let starts = (start..end).step_by(12 * PAGE_SIZE as usize);
                starts.map(move |start| AddrRange::new(start, end.min(start + 12 * PAGE_SIZE)))
            });
        let hint = |range| Hint {
            target: id,
            range,
            action: Action::Cold,
        };
        let hints: Vec<Hint> = pieces.map(hint).collect();
        let results = Hinter::new(Actor::new(PageoutLimits::default(), false), Limits::default())
            .give(&processes, &hints);
        if results
            .iter()
            .any(|result| skipped_for(result, Skip::NotPermitted))
        {
            return eprintln!("SKIP: other processes' memory cannot be advised here");
        }
        let hole = AddrRange::new(target.hole, target.hole + HOLE);
        let (mut valid, mut done) = (0, 0);
        for (hint, result) in hints.iter().zip(&results) {
            let len = hint.range.len();
            assert_eq!(result.advised + skipped(result), len, "{hint:?}: {result:?}");
            let unmapped = hint
                .range
                .intersection(&hole)
                .map_or(Bytes::ZERO, |part| part.len());
            if (target.other..target.other + OTHER).contains(&hint.range.start.0) {
                let is_skipped = result.advised == Bytes::ZERO && skipped_for(result, why);
                assert!(
                    is_skipped || skipped_for(result, Skip::NotPresent),
                    "{hint:?}: {result:?}"
                );
            } else if unmapped > Bytes::ZERO {
                assert!(result.advised <= len - unmapped, "{hint:?}: {result:?}");
                assert!(skipped_for(result, Skip::NotPresent), "{hint:?}: {result:?}");
            } else {
                valid += 1;
                done += usize::from(result.advised == len);
            }
        }
        // The kernel may have reclaimed some pages meanwhile.
        assert!(done > valid * 9 / 10 && valid > 250, "{kind}: {done} of {valid}");
    }
}
