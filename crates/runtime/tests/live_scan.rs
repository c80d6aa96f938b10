//! Scans of real processes.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use common::access::{count, library, pages, scan, scanning};
use common::{Target, retry, tracker};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::budget::Method;
use thermo_engine::scan::{ScanChunk, ScanResult};
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
    common::run_if_child();
}

/// The first quarter of a range, and the rest.
fn quarter(range: AddrRange) -> (AddrRange, AddrRange) {
    let border = range.start + Bytes(range.len().0 / 4);
    let (start, end) = (range.start, range.end);
    (AddrRange { start, end: border }, AddrRange { start: border, end })
}

#[test]
fn scan_finds_exactly_the_accessed_pages() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(64 << 20);
    let processes = target.processes();
    let all = target.range;
    let (hot, cold) = quarter(all);
    retry(|| {
        scan(&mut tracker, &processes, all);
        target.touch(hot);
        let chunk = scan(&mut tracker, &processes, all);
        let found = count(&chunk, hot, ScanResult::Accessed);
        let false_positives = count(&chunk, cold, ScanResult::Accessed);
        let idle = count(&chunk, cold, ScanResult::Idle) + count(&chunk, cold, ScanResult::Absent);
        if found == pages(hot) && false_positives == 0 && idle == pages(cold) {
            return Ok(());
        }
        Err(format!(
            "{found} of {} accessed pages found; of {} other pages {false_positives} reported as accessed, {idle} idle",
            pages(hot),
            pages(cold)
        ))
    });
}

#[test]
fn scan_stays_within_a_range_inside_of_page_tables() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(8 << 20);
    let processes = target.processes();
    let start = target.range.start + Bytes(300 * 4096);
    let part = AddrRange {
        start,
        end: start + Bytes(700 * 4096),
    };
    let all = target.range;
    retry(|| {
        target.touch(all);
        scan(&mut tracker, &processes, part);
        let again = scan(&mut tracker, &processes, part);
        let rest = scan(&mut tracker, &processes, all);
        let (idle, others) = (
            count(&again, part, ScanResult::Idle),
            count(&rest, all, ScanResult::Accessed),
        );
        if idle == pages(part) && others == pages(all) - pages(part) {
            return Ok(());
        }
        Err(format!(
            "{idle} of 700 pages are idle, {others} others have their accessed bit"
        ))
    });
}

/// 64 MiB of a target of 66 MiB, from the start of a page table.
fn whole_tables(target: &Target) -> AddrRange {
    let start = target.range.start.0.next_multiple_of(2 << 20);
    AddrRange::new(start, start + (64 << 20))
}

/// A scan pass over `range` of target 0, as if all pages had been accessed in each of the last passes.
fn scan_steady(tracker: &mut PteTracker, processes: &Processes, range: AddrRange) -> ScanChunk {
    tracker.begin_pass(&processes[&TargetId(0)]);
    let mut chunk = ScanChunk::default();
    chunk.reset(range);
    (range.start.0..range.end.0)
        .step_by(4096)
        .for_each(|addr| chunk.set_steadily_accessed(Addr(addr)));
    tracker.scan(&processes[&TargetId(0)], range, &mut chunk);
    chunk
}

#[test]
fn steady_memory_keeps_most_bits_and_changes_are_found() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(66 << 20);
    let processes = target.processes();
    let all = whole_tables(&target);
    let (hot, cold) = quarter(all);
    let addrs: Vec<Addr> = (all.start.0..all.end.0).step_by(4096).map(Addr).collect();
    retry(|| {
        scan(&mut tracker, &processes, all);
        target.touch(all);
        let steady = scan_steady(&mut tracker, &processes, all);
        let mut entries = Vec::new();
        let tables = tracker.tables();
        tables
            .entries(target.pid(), &addrs, Folios::None, &mut entries)
            .unwrap();
        let is_accessed = |entry: &&Entry| matches!(entry, Entry::Leaf(leaf) if leaf.accessed);
        let still_set = entries.iter().filter(is_accessed).count();
        target.touch(hot);
        let changed = scan_steady(&mut tracker, &processes, all);
        target.touch(hot);
        let exact = scan_steady(&mut tracker, &processes, all);
        let found = |chunk: &ScanChunk| {
            (
                count(chunk, hot, ScanResult::Accessed),
                count(chunk, cold, ScanResult::Idle),
            )
        };
        let expected = (pages(hot), pages(cold));
        // Other programs (in-kernel DAMON) clear bits, too, but not most of them.
        let eighths = still_set * 8 / pages(all);
        if count(&steady, all, ScanResult::Accessed) == pages(all)
            && (4..=7).contains(&eighths)
            && (found(&changed), found(&exact)) == (expected, expected)
        {
            return Ok(());
        }
        Err(format!(
            "{still_set} of {} bits are still set; then {:?} and {:?} found, {expected:?} expected",
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
fn scattered_pages_are_cleared_with_few_ranges() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(16 << 20);
    let processes = target.processes();
    let all = target.range;
    let touched = scattered(all);
    retry(|| {
        scan(&mut tracker, &processes, all);
        touched.iter().for_each(|page| target.touch(*page));
        let before = tracker.clear_stats();
        let found = scan(&mut tracker, &processes, all);
        let after = tracker.clear_stats();
        // An access in a bridged gap after it was cleared is found by the next pass.
        let between = AddrRange::new(all.start.0 + 3 * 4096, all.start.0 + 5 * 4096);
        target.touch(between);
        let next = scan(&mut tracker, &processes, all);
        let accessed = touched
            .iter()
            .filter(|page| found.get(page.start) == ScanResult::Accessed);
        let counts = [
            accessed.count(),
            count(&found, all, ScanResult::Accessed),
            count(&next, all, ScanResult::Accessed),
            count(&next, between, ScanResult::Accessed),
        ];
        let ranges = after.ranges - before.ranges;
        if counts == [touched.len(), touched.len(), 2, 2] && ranges <= 8 {
            return Ok(());
        }
        Err(format!("{counts:?} of {} pages, {ranges} ranges", touched.len()))
    });
}

/// Maps 4 MiB, locks 64 KiB in the middle, and reads every tenth page for each line on its standard input.
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
fn locked_pages_in_gaps_do_not_prevent_clearing() {
    let Some(mut tracker) = tracker() else { return };
    let python = Command::new("python3")
        .args(["-c", LOCKED_IN_THE_MIDDLE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else {
        return eprintln!("SKIP: python3 is not installed");
    };
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
    let start: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    if start == 0 {
        python.wait().unwrap();
        return eprintln!("SKIP: memory cannot be locked here");
    }
    let all = AddrRange::new(start, start + (4 << 20));
    let locked = AddrRange::new(start + (2 << 20), start + (2 << 20) + (64 << 10));
    let id = TargetId(0);
    let processes = Processes::from([(id, Process::open(id, python.id()).unwrap())]);
    let mut stdin = python.stdin.take().unwrap();
    retry(|| {
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
            count(&found, all, ScanResult::Accessed),
            count(&found, locked, ScanResult::Unknown),
            count(&again, all, ScanResult::Accessed),
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

/// Accesses 4 MiB again and again. After a line on its standard input it forks a child, which shares the
/// memory.
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
        return eprintln!("SKIP: python3 is not installed");
    };
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
    let start: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    let busy = AddrRange::new(start, start + (4 << 20));
    let id = TargetId(0);
    let processes = Processes::from([(id, Process::open(id, python.id()).unwrap())]);
    let pass = |tracker: &mut PteTracker| {
        tracker.begin_pass(&processes[&id]);
        scan(tracker, &processes, busy)
    };
    retry(|| {
        // A page whose bit is set again right after clearing is known to be mapped exclusively.
        let seen = (0..20).map(|_| count(&pass(&mut tracker), busy, ScanResult::Accessed));
        match seen.last() {
            Some(seen) if seen == pages(busy) => Ok(()),
            seen => Err(format!("{seen:?} of {} pages are accessed", pages(busy))),
        }
    });
    drop(python.stdin.take());
    assert_eq!(lines.next().unwrap().unwrap(), "forked");
    // From the first pass on, no page is reported as accessed. Pages that were not accessed since are idle.
    let accessed = count(&pass(&mut tracker), busy, ScanResult::Accessed);
    let all_unknown = (0..1000).any(|_| count(&pass(&mut tracker), busy, ScanResult::Unknown) == pages(busy));
    python.kill().unwrap();
    python.wait().unwrap();
    assert_eq!((accessed, all_unknown), (0, true));
}

#[test]
fn scan_does_not_split_huge_pages() {
    let Some(mut tracker) = tracker() else { return };
    let Some(mut target) = Target::start_huge(8 << 20) else {
        return;
    };
    let before = target.huge();
    let processes = target.processes();
    let all = target.range;
    // Not aligned to huge pages.
    let inside = AddrRange {
        start: all.start + Bytes(100 * 4096),
        end: all.start + Bytes::mib(5),
    };
    retry(|| {
        scan(&mut tracker, &processes, inside);
        scan(&mut tracker, &processes, all);
        let quiet = scan(&mut tracker, &processes, all);
        target.touch(inside);
        let busy = scan(&mut tracker, &processes, all);
        let idle = count(&quiet, all, ScanResult::Idle);
        let accessed = count(&busy, inside, ScanResult::Accessed);
        if idle == pages(all) && accessed == pages(inside) {
            return Ok(());
        }
        Err(format!(
            "{idle} pages idle without accesses; {accessed} accessed pages found of {}",
            pages(inside)
        ))
    });
    let after = target.huge();
    assert!(after >= before, "{after} of {before} in huge pages");
}

#[test]
fn shared_pages_are_unknown() {
    let Some(mut tracker) = tracker() else { return };
    let target = Target::start(1 << 20);
    let Some(libc) = library(&target) else { return };
    let processes = target.processes();
    retry(|| {
        scan(&mut tracker, &processes, libc);
        let chunk = scan(&mut tracker, &processes, libc);
        let accessed = count(&chunk, libc, ScanResult::Accessed);
        let unknown = count(&chunk, libc, ScanResult::Unknown);
        if accessed == 0 && unknown > 0 {
            return Ok(());
        }
        Err(format!(
            "{accessed} pages reported as accessed, {unknown} as unknown"
        ))
    });
}

#[test]
fn ended_process_has_no_pages() {
    let Some(mut tracker) = tracker() else { return };
    let mut target = Target::start(4 << 20);
    let processes = target.processes();
    scan(&mut tracker, &processes, target.range);
    target.kill();
    let chunk = scan(&mut tracker, &processes, target.range);
    assert_eq!(
        count(&chunk, target.range, ScanResult::Absent),
        pages(target.range)
    );
}

#[test]
fn context_finds_exact_border_and_ends_with_its_target() {
    let Some(tracker) = tracker() else { return };
    let mut target = Target::start(64 << 20);
    let (mut context, mut ops) = scanning(&[target.pid()], tracker);
    let (hot, cold) = quarter(target.range);
    // The test sets the time, so no pass has to be waited for.
    let mut now = clock::monotonic();
    retry(|| {
        let (mut result, mut snapshots) = (String::new(), 0);
        let mut is_exact = false;
        while snapshots < 4 {
            let mut sink = |event: &Event<'_>| match event {
                Event::Aggregated { targets, .. } => {
                    snapshots += 1;
                    let regions = targets.first().map_or(&[][..], |target| target.regions);
                    let within = regions
                        .iter()
                        .filter(|region| region.range.overlaps(&target.range));
                    let accessed: Vec<_> = within.filter(|region| region.nr_accesses >= 60).collect();
                    is_exact = matches!(accessed[..], [region] if region.range == hot);
                    result = format!("{accessed:?} should be {hot:?}, without {cold:?}");
                }
                Event::Planned { plan, .. } => assert_eq!(plan.method, Method::Scan),
                _ => {}
            };
            let Next::At(next) = context.step(now, &mut ops, &mut sink).unwrap() else {
                panic!("the target is alive")
            };
            // Accesses all hot pages between two scans.
            if next > now {
                target.touch(hot);
            }
            now = now.max(next);
        }
        if is_exact { Ok(()) } else { Err(result) }
    });
    target.kill();
    for _ in 0..1000 {
        match context.step(now, &mut ops, &mut |_: &Event<'_>| {}).unwrap() {
            Next::Finished => return,
            Next::At(next) => now = now.max(next).saturating_add(Nanos::millis(1)),
        }
    }
    panic!("the context did not notice the end of the target");
}

/// Number of pages of `target` on an active list.
fn count_active(target: &Target, frames: &PageFrames) -> usize {
    let mut pages = Vec::new();
    Pagemap::open(Path::new("/"), target.pid())
        .unwrap()
        .read(target.range, &mut pages)
        .unwrap();
    let flags = pages.iter().filter_map(|page| frames.flags(page.pfn()?).ok());
    flags.filter(|flags| flags.is_active()).count()
}

#[test]
fn active_pages_stay_active_with_keep_active_pages() {
    let Some(tracker) = tracker() else { return };
    let frames = match PageFrames::open(Path::new("/")) {
        Ok(frames) => frames,
        Err(why) => return eprintln!("SKIP: /proc/kpageflags cannot be read: {why}"),
    };
    let mut target = Target::start(16 << 20);
    let processes = target.processes();
    let all = target.range;
    let addrs: Vec<thermo_units::Addr> = target.pages().collect();
    let pid = target.pid();
    let touch_twice = || {
        for addrs in addrs.chunks(MAX_PAGES).chain(addrs.chunks(MAX_PAGES)) {
            // Failures show in the count.
            let _ = touch(pid, addrs);
        }
    };
    touch_twice();
    if count_active(&target, &frames) < pages(all) / 2 {
        return eprintln!("SKIP: accesses do not activate pages here");
    }
    let mut tracker = tracker;
    tracker.keep_active_pages();
    retry(|| {
        touch_twice();
        target.touch(all);
        let seen = scan(&mut tracker, &processes, all);
        let again = scan(&mut tracker, &processes, all);
        let accessed = [&seen, &again].map(|chunk| count(chunk, all, ScanResult::Accessed));
        let active = count_active(&target, &frames);
        // The kernel deactivates pages in batches. The last batch is deactivated only after the pages were
        // accessed.
        let is_good = active * 10 >= pages(all) * 9
            && accessed[0] * 10 >= pages(all) * 9
            && accessed[1] * 10 <= pages(all);
        if is_good {
            Ok(())
        } else {
            Err(format!(
                "{active} of {} active, {accessed:?} accessed",
                pages(all)
            ))
        }
    });
}
