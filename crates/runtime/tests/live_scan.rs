//! Looking at every page of real processes.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use common::look::{count, library, pages, scan, scanning};
use common::{Target, repeat_until_good, tracker};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::budget::Method;
use thermo_engine::scan::{PageSeen, ScanChunk};
use thermo_engine::{Event, Next, TargetId};
use thermo_kernel::clock;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::process_vm::{MAX_PAGES, touch};
use thermo_pagetable::{Entry, Folios};
use thermo_targets::{Process, Processes};
use thermo_units::{Addr, AddrRange, Bytes, Nanos};

#[test]
fn child() {
    common::live_as_child();
}

/// The first quarter, and the rest.
fn quarter(range: AddrRange) -> (AddrRange, AddrRange) {
    let border = range.start + Bytes(range.len().0 / 4);
    let (start, end) = (range.start, range.end);
    (AddrRange { start, end: border }, AddrRange { start: border, end })
}

#[test]
fn exactly_the_touched_pages_are_accessed() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(64 << 20);
    let processes = target.processes();
    let all = target.range;
    let (hot, cold) = quarter(all);
    repeat_until_good(|| {
        scan(&mut tracker, &processes, all);
        target.touch(hot);
        let piece = scan(&mut tracker, &processes, all);
        let touched = count(&piece, hot, PageSeen::Accessed);
        let wrongly = count(&piece, cold, PageSeen::Accessed);
        let idle = count(&piece, cold, PageSeen::Idle) + count(&piece, cold, PageSeen::Absent);
        if touched == pages(hot) && wrongly == 0 && idle == pages(cold) {
            return Ok(());
        }
        Err(format!(
            "of {} touched pages {touched} are accessed; of {} others {wrongly} are, and {idle} idle",
            pages(hot),
            pages(cold)
        ))
    });
}

#[test]
fn a_range_inside_of_tables_is_looked_at_and_no_more() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(8 << 20);
    let processes = target.processes();
    let start = target.range.start + Bytes(300 * 4096);
    let part = AddrRange {
        start,
        end: start + Bytes(700 * 4096),
    };
    let all = target.range;
    repeat_until_good(|| {
        target.touch(all);
        scan(&mut tracker, &processes, part);
        let again = scan(&mut tracker, &processes, part);
        let rest = scan(&mut tracker, &processes, all);
        let (idle, others) = (
            count(&again, part, PageSeen::Idle),
            count(&rest, all, PageSeen::Accessed),
        );
        if idle == pages(part) && others == pages(all) - pages(part) {
            return Ok(());
        }
        Err(format!(
            "{idle} of 700 pages are idle, {others} others still marked"
        ))
    });
}

/// 64 MiB of a target of 66, from the begin of a page-table page on.
fn whole_tables(target: &Target) -> AddrRange {
    let start = target.range.start.0.next_multiple_of(2 << 20);
    AddrRange::new(start, start + (64 << 20))
}

/// A round over `range` of target 0, all of which was touched in each of the last rounds.
fn round_over_steady(tracker: &mut PteTracker, processes: &Processes, range: AddrRange) -> ScanChunk {
    tracker.begin_pass(&processes[&TargetId(0)]);
    let mut piece = ScanChunk::default();
    piece.reset(range);
    (range.start.0..range.end.0)
        .step_by(4096)
        .for_each(|addr| piece.set_steady(Addr(addr)));
    tracker.scan(&processes[&TargetId(0)], range, &mut piece);
    piece
}

#[test]
fn of_steady_memory_most_marks_stay_and_a_change_is_seen_all_the_same() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(66 << 20);
    let processes = target.processes();
    let all = whole_tables(&target);
    let (hot, cold) = quarter(all);
    let addrs: Vec<Addr> = (all.start.0..all.end.0).step_by(4096).map(Addr).collect();
    repeat_until_good(|| {
        scan(&mut tracker, &processes, all);
        target.touch(all);
        let steady = round_over_steady(&mut tracker, &processes, all);
        let mut entries = Vec::new();
        let tables = tracker.tables();
        tables
            .entries(target.pid(), &addrs, Folios::Unasked, &mut entries)
            .unwrap();
        let is_marked = |entry: &&Entry| matches!(entry, Entry::Leaf(leaf) if leaf.accessed);
        let left = entries.iter().filter(is_marked).count();
        target.touch(hot);
        let changed = round_over_steady(&mut tracker, &processes, all);
        target.touch(hot);
        let exact = round_over_steady(&mut tracker, &processes, all);
        let found = |piece: &ScanChunk| {
            (
                count(piece, hot, PageSeen::Accessed),
                count(piece, cold, PageSeen::Idle),
            )
        };
        let expected = (pages(hot), pages(cold));
        // Others (a kdamond) take marks, too, but hardly most of them.
        let eighths = left * 8 / pages(all);
        if count(&steady, all, PageSeen::Accessed) == pages(all)
            && (4..=7).contains(&eighths)
            && (found(&changed), found(&exact)) == (expected, expected)
        {
            return Ok(());
        }
        Err(format!(
            "{left} of {} marks were left; then {:?} and {:?} were found, {expected:?} expected",
            pages(all),
            found(&changed),
            found(&exact)
        ))
    });
}

/// Every tenth page of a range.
fn scattered(range: AddrRange) -> Vec<AddrRange> {
    let starts = (range.start.0..range.end.0).step_by(10 * 4096);
    starts.map(|start| AddrRange::new(start, start + 4096)).collect()
}

#[test]
fn scattered_pages_are_cleared_by_few_ranges_and_told_from_those_between() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(16 << 20);
    let processes = target.processes();
    let all = target.range;
    let touched = scattered(all);
    repeat_until_good(|| {
        scan(&mut tracker, &processes, all);
        touched.iter().for_each(|page| target.touch(*page));
        let before = tracker.clear_stats();
        let found = scan(&mut tracker, &processes, all);
        let after = tracker.clear_stats();
        // What is accessed in a gap after it was cleared is found by the next pass.
        let between = AddrRange::new(all.start.0 + 3 * 4096, all.start.0 + 5 * 4096);
        target.touch(between);
        let next = scan(&mut tracker, &processes, all);
        let accessed = touched
            .iter()
            .filter(|page| found.get(page.start) == PageSeen::Accessed);
        let counts = [
            accessed.count(),
            count(&found, all, PageSeen::Accessed),
            count(&next, all, PageSeen::Accessed),
            count(&next, between, PageSeen::Accessed),
        ];
        let ranges = after.ranges - before.ranges;
        if counts == [touched.len(), touched.len(), 2, 2] && ranges <= 8 {
            return Ok(());
        }
        Err(format!("{counts:?} of {} pages, {ranges} ranges", touched.len()))
    });
}

/// Maps 4 MiB, of which 64 KiB in the middle are locked, and reads every tenth page for each line on its standard input.
const LOCKED_IN_THE_MIDDLE: &str = "
import ctypes, mmap, sys
memory = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[::4096] = bytes([1]) * 1024
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
locked = ctypes.CDLL(None).mlock(ctypes.c_void_p(start + (2 << 20)), ctypes.c_size_t(64 << 10))
print(start if locked == 0 else 0, flush=True)
for line in sys.stdin:
    memory[::40960]
    print('read', flush=True)
";

#[test]
fn gaps_with_locked_pages_keep_no_others_from_being_cleared() {
    let Some(mut tracker) = tracker() else { return };
    let python = Command::new("python3")
        .args(["-c", LOCKED_IN_THE_MIDDLE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else {
        return eprintln!("SKIP: there is no python3");
    };
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
    let start: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    if start == 0 {
        python.wait().unwrap();
        return eprintln!("SKIP: no memory may be locked");
    }
    let all = AddrRange::new(start, start + (4 << 20));
    let locked = AddrRange::new(start + (2 << 20), start + (2 << 20) + (64 << 10));
    let id = TargetId(0);
    let processes = Processes::from([(id, Process::open(id, python.id()).unwrap())]);
    let mut stdin = python.stdin.take().unwrap();
    repeat_until_good(|| {
        writeln!(stdin, "read").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "read");
        let pass = |tracker: &mut PteTracker| {
            tracker.begin_pass(&processes[&id]);
            scan(tracker, &processes, all)
        };
        let found = pass(&mut tracker);
        let again = pass(&mut tracker);
        // Bits of locked pages stay set.
        let counts = [
            count(&found, all, PageSeen::Accessed),
            count(&found, locked, PageSeen::Unknown),
            count(&again, all, PageSeen::Accessed),
        ];
        let is_cleared = |page: &&AddrRange| !page.overlaps(&locked);
        let expected = [scattered(all).iter().filter(is_cleared).count(), pages(locked), 0];
        if counts == expected {
            return Ok(());
        }
        Err(format!("{counts:?} pages, {expected:?} expected"))
    });
    python.kill().unwrap();
    python.wait().unwrap();
}

/// Touches 4 MiB again and again; after a line on its standard input a child of it maps them, too.
const BUSY_THEN_FORKS: &str = "
import ctypes, mmap, os, select, sys
memory = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[::4096] = bytes([1]) * 1024
print(ctypes.addressof(ctypes.c_char.from_buffer(memory)), flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    memory[::4096]
until_it_ends, held = os.pipe()
if os.fork() == 0:
    os.close(held)
    os.read(until_it_ends, 1)
    os._exit(0)
print('forked', flush=True)
while True:
    memory[::4096]
";

#[test]
fn busy_memory_is_unknown_once_a_fork_shares_it() {
    let Some(mut tracker) = tracker() else { return };
    let python = Command::new("python3")
        .args(["-c", BUSY_THEN_FORKS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else {
        return eprintln!("SKIP: there is no python3");
    };
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
    let start: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    let busy = AddrRange::new(start, start + (4 << 20));
    let id = TargetId(0);
    let processes = Processes::from([(id, Process::open(id, python.id()).unwrap())]);
    let round = |tracker: &mut PteTracker| {
        tracker.begin_pass(&processes[&id]);
        scan(tracker, &processes, busy)
    };
    repeat_until_good(|| {
        // What is marked again by the time it is looked at is known to be the process's own after that.
        let seen = (0..20).map(|_| count(&round(&mut tracker), busy, PageSeen::Accessed));
        match seen.last() {
            Some(seen) if seen == pages(busy) => Ok(()),
            seen => Err(format!("{seen:?} of {} pages are accessed", pages(busy))),
        }
    });
    drop(python.stdin.take());
    assert_eq!(lines.next().unwrap().unwrap(), "forked");
    // What it has not yet touched again is idle, but nothing is told accessed, from the first round on.
    let told_accessed = count(&round(&mut tracker), busy, PageSeen::Accessed);
    let all_unknown = (0..1000).any(|_| count(&round(&mut tracker), busy, PageSeen::Unknown) == pages(busy));
    python.kill().unwrap();
    python.wait().unwrap();
    assert_eq!((told_accessed, all_unknown), (0, true));
}

#[test]
fn huge_pages_stay_whole() {
    let Some(mut tracker) = tracker() else { return };
    let Some(mut target) = Target::start_huge(8 << 20) else {
        return;
    };
    let before = target.huge();
    let processes = target.processes();
    let all = target.range;
    // Not on the borders of huge pages.
    let inside = AddrRange {
        start: all.start + Bytes(100 * 4096),
        end: all.start + Bytes::mib(5),
    };
    repeat_until_good(|| {
        scan(&mut tracker, &processes, inside);
        scan(&mut tracker, &processes, all);
        let quiet = scan(&mut tracker, &processes, all);
        target.touch(inside);
        let busy = scan(&mut tracker, &processes, all);
        let idle = count(&quiet, all, PageSeen::Idle);
        let touched = count(&busy, inside, PageSeen::Accessed);
        if idle == pages(all) && touched == pages(inside) {
            return Ok(());
        }
        Err(format!(
            "{idle} pages were idle when nothing was touched, {touched} accessed when {} were",
            pages(inside)
        ))
    });
    let after = target.huge();
    assert!(after >= before, "{after} of {before} are left");
}

#[test]
fn pages_that_others_map_too_are_unknown() {
    let Some(mut tracker) = tracker() else { return };
    let target = Target::start(1 << 20);
    let Some(libc) = library(&target) else { return };
    let processes = target.processes();
    repeat_until_good(|| {
        scan(&mut tracker, &processes, libc);
        let piece = scan(&mut tracker, &processes, libc);
        let accessed = count(&piece, libc, PageSeen::Accessed);
        let unknown = count(&piece, libc, PageSeen::Unknown);
        if accessed == 0 && unknown > 0 {
            return Ok(());
        }
        Err(format!("{accessed} pages are called accessed, {unknown} unknown"))
    });
}

#[test]
fn a_process_that_is_gone_has_no_pages() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(4 << 20);
    let processes = target.processes();
    scan(&mut tracker, &processes, target.range);
    target.kill();
    let piece = scan(&mut tracker, &processes, target.range);
    assert_eq!(count(&piece, target.range, PageSeen::Absent), pages(target.range));
}

#[test]
fn a_context_tells_the_exact_border_and_ends_with_its_target() {
    let Some(tracker) = tracker() else { return };
    let mut target = Target::start(64 << 20);
    let (mut context, mut ops) = scanning(&[target.pid()], tracker);
    let (hot, cold) = quarter(target.range);
    // The clock is ours: no round is waited for.
    let mut now = clock::monotonic();
    repeat_until_good(|| {
        let (mut seen, mut rounds) = (String::new(), 0);
        let mut borders = false;
        while rounds < 4 {
            let mut sink = |event: &Event<'_>| match event {
                Event::Aggregated { targets, .. } => {
                    rounds += 1;
                    let regions = targets.first().map_or(&[][..], |target| target.regions);
                    let within = regions
                        .iter()
                        .filter(|region| region.range.overlaps(&target.range));
                    let touched: Vec<_> = within.filter(|region| region.nr_accesses >= 60).collect();
                    borders = matches!(touched[..], [one] if one.range == hot);
                    seen = format!("{touched:?} should be {hot:?}, without {cold:?}");
                }
                Event::Planned { plan, .. } => assert_eq!(plan.method, Method::Scan),
                _ => {}
            };
            let Next::At(next) = context.step(now, &mut ops, &mut sink).unwrap() else {
                panic!("the target lives")
            };
            // Between two looks all that is hot is touched.
            if next > now {
                target.touch(hot);
            }
            now = now.max(next);
        }
        if borders { Ok(()) } else { Err(seen) }
    });
    target.kill();
    for _ in 0..1000 {
        match context.step(now, &mut ops, &mut |_: &Event<'_>| {}).unwrap() {
            Next::Finished => return,
            Next::At(next) => now = now.max(next).saturating_add(Nanos::millis(1)),
        }
    }
    panic!("the target is gone, and that was not noticed");
}

/// How many pages of `target` are on an active list.
fn active(target: &Target, frames: &PageFrames) -> usize {
    let mut pages = Vec::new();
    Pagemap::open(Path::new("/"), target.pid())
        .unwrap()
        .read(target.range, &mut pages)
        .unwrap();
    let flags = pages.iter().filter_map(|page| frames.flags(page.pfn()?).ok());
    flags.filter(|flags| flags.is_active()).count()
}

#[test]
fn active_pages_stay_active_where_that_is_asked_for() {
    let Some(tracker) = tracker() else { return };
    let frames = match PageFrames::open(Path::new("/")) {
        Ok(frames) => frames,
        Err(why) => return eprintln!("SKIP: the flags of frames cannot be read: {why}"),
    };
    let mut target = Target::start(16 << 20);
    let processes = target.processes();
    let all = target.range;
    let addrs: Vec<thermo_units::Addr> = target.pages().collect();
    let pid = target.pid();
    let touch_twice = || {
        for addrs in addrs.chunks(MAX_PAGES).chain(addrs.chunks(MAX_PAGES)) {
            // What could not be touched shows in the count.
            let _ = touch(pid, addrs);
        }
    };
    touch_twice();
    if active(&target, &frames) < pages(all) / 2 {
        return eprintln!("SKIP: touching pages does not make them active here");
    }
    let mut tracker = tracker;
    tracker.keep_active();
    repeat_until_good(|| {
        touch_twice();
        target.touch(all);
        let seen = scan(&mut tracker, &processes, all);
        let left = scan(&mut tracker, &processes, all);
        let accessed = [&seen, &left].map(|piece| count(piece, all, PageSeen::Accessed));
        let active = active(&target, &frames);
        // The last ones that the kernel moves down wait in a batch, and are moved after they were touched.
        let good = active * 10 >= pages(all) * 9
            && accessed[0] * 10 >= pages(all) * 9
            && accessed[1] * 10 <= pages(all);
        if good {
            Ok(())
        } else {
            Err(format!(
                "{active} of {} active, {accessed:?} accessed",
                pages(all)
            ))
        }
    });
}
