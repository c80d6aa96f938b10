//! Scans of 1 GiB: CPU time, slow-down of the target, missed accesses, and effect on the LRU lists, with and
//! without bridging the gaps between accessed pages.
//!
//! `cargo bench -p thermo-runtime --bench scan_cost [-- cost|slow-down|accuracy|lists]`
//!
//! The target accesses 35 random pages of every 2 MiB again and again on CPU 1; passes run on CPU 0.

#![allow(clippy::unwrap_used, reason = "a failed benchmark panics")]

mod child;
#[path = "../measure/mod.rs"]
mod measure;

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use child::{ScannedChild, set_of};
use measure::{is_selected, quantile};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::TargetId;
use thermo_engine::scan::{ScanChunk, ScanResult};
use thermo_kernel::clock;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::process_vm::{MAX_PAGES, touch};
use thermo_targets::{Process, Processes};
use thermo_units::{Addr, AddrRange, Nanos, PAGE_SIZE};

const BYTES: u64 = 1 << 30;
/// Size of the chunks that a context scans.
const CHUNK: u64 = 64 << 20;
const SET: usize = 35;
const ROUNDS: usize = 5;
/// Largest bridged gap in pages: none, a fixed one, and the one that the tracker calibrates.
const ARMS: [(&str, Option<u64>); 3] = [("gap 0", Some(0)), ("gap 128", Some(128)), ("calibrated", None)];

struct Arm {
    name: &'static str,
    tracker: PteTracker,
    chunk: ScanChunk,
    /// True if all pages count as accessed in each of the last passes.
    is_steady: bool,
}

impl Arm {
    fn all() -> Option<Vec<Self>> {
        let arm = |(name, gap): (&'static str, Option<u64>)| {
            let mut tracker = PteTracker::new()
                .inspect_err(|why| println!("SKIP: {why}"))
                .ok()?;
            if let Some(gap) = gap {
                tracker.fix_gap(gap);
            }
            Some(Self {
                name,
                tracker,
                chunk: ScanChunk::default(),
                is_steady: false,
            })
        };
        ARMS.into_iter().map(arm).collect()
    }

    /// Scans `range` once and calls `each` for each chunk. Returns the CPU time and the number of cleared
    /// ranges.
    fn pass(
        &mut self,
        processes: &Processes,
        range: AddrRange,
        mut each: impl FnMut(&ScanChunk),
    ) -> (Nanos, u64) {
        let before = (clock::thread_cpu(), self.tracker.clear_stats().ranges);
        let mut callback_time = Nanos::ZERO;
        self.tracker.begin_pass(&processes[&TargetId(0)]);
        for start in (range.start.0..range.end.0).step_by(CHUNK as usize) {
            let range = AddrRange::new(start, (start + CHUNK).min(range.end.0));
            self.chunk.reset(range);
            let words = (start..range.end.0)
                .step_by(64 * PAGE_SIZE as usize)
                .filter(|_| self.is_steady);
            words.for_each(|word| self.chunk.set_steadily_accessed(Addr(word)));
            self.tracker
                .scan(&processes[&TargetId(0)], range, &mut self.chunk);
            let began = clock::thread_cpu();
            each(&self.chunk);
            callback_time += clock::thread_cpu().saturating_sub(began);
        }
        let elapsed = clock::thread_cpu().saturating_sub(before.0);
        (
            elapsed.saturating_sub(callback_time),
            self.tracker.clear_stats().ranges - before.1,
        )
    }
}

fn main() {
    child::run_if_child();
    let Some(mut arms) = Arm::all() else { return };
    let mut target = ScannedChild::start(BYTES);
    let processes = Processes::from([(TargetId(0), target.process())]);
    child::run_on(0);
    for (name, measure) in [
        ("cost", cost as fn(&mut [Arm], &mut ScannedChild, &Processes)),
        ("slow-down", slow_down),
        ("accuracy", accuracy),
        ("lists", lists),
    ] {
        if is_selected(name) {
            measure(&mut arms, &mut target, &processes);
        }
    }
}

fn spread(values: &[f64]) -> String {
    let at = |share| quantile(values, share);
    format!("{:>9.2}  ({:.2} to {:.2})", at(0.5), at(0.0), at(1.0))
}

/// CPU time of a pass, and number of cleared ranges.
fn cost(arms: &mut [Arm], target: &mut ScannedChild, processes: &Processes) {
    println!("\n{:<34} {:>28} {:>28}", "a pass over 1 GiB", "CPU ms", "ranges");
    for (what, each, spins, reads) in [
        ("busy, 35 of 512 pages", SET, true, false),
        ("busy, 8 of 512 pages", 8, true, false),
        ("busy, 200 of 512 pages", 200, true, false),
        ("all accessed, target asleep", 0, false, true),
        ("hot: as above, steady", 0, false, true),
        ("idle", 0, false, false),
    ] {
        if spins {
            target.spin(each);
        }
        let mut results = vec![(Vec::new(), Vec::new()); arms.len()];
        arms.iter_mut()
            .for_each(|arm| arm.is_steady = what.starts_with("hot"));
        for round in 0..=2 * ROUNDS {
            for (arm, (times, ranges)) in arms.iter_mut().zip(&mut results) {
                match reads {
                    true => target.read_all(),
                    false => sleep(Duration::from_millis(100)),
                }
                let (cpu, nr_ranges) = arm.pass(processes, target.range, |_| ());
                // The first rounds clear old accessed bits and calibrate.
                if round > 2 {
                    times.push(cpu.0 as f64 / 1e6);
                    ranges.push(nr_ranges as f64);
                }
            }
        }
        if spins {
            target.stop();
        }
        for (arm, (times, ranges)) in arms.iter().zip(&results) {
            let gap = arm.tracker.gap(TargetId(0)).unwrap_or_default();
            println!(
                "{what:<34} {:<11} {:>28} {:>28}  gap {gap}",
                arm.name,
                spread(times),
                spread(ranges)
            );
        }
    }
}

/// Accesses of the busy target per second of its CPU time, with one pass per second and without. Other load
/// on the machine takes CPU time, but hardly changes this rate.
fn slow_down(arms: &mut [Arm], target: &mut ScannedChild, processes: &Processes) {
    const DURATION: Duration = Duration::from_secs(4);
    target.spin(SET);
    sleep(Duration::from_secs(1));
    let mut rates = vec![Vec::new(); arms.len() + 1];
    for _ in 0..ROUNDS + 1 {
        for (nth, rates) in rates.iter_mut().enumerate() {
            let (began, before) = (Instant::now(), target.count());
            let mut next = began;
            while began.elapsed() < DURATION {
                if let Some(arm) = nth.checked_sub(1).and_then(|nth| arms.get_mut(nth)) {
                    arm.pass(processes, target.range, |_| ());
                }
                next += Duration::from_secs(1);
                sleep(next.saturating_duration_since(Instant::now()));
            }
            let after = target.count();
            let cpu_ns = after.1.saturating_sub(before.1).0 as f64;
            rates.push((after.0 - before.0) as f64 * 1e3 / cpu_ns);
        }
    }
    target.stop();
    let baseline = quantile(&rates[0], 0.5);
    println!("\nmillion accesses per second of CPU time, one pass per second");
    let names = std::iter::once("no scan").chain(arms.iter().map(|arm| arm.name));
    for (name, rates) in names.zip(&rates) {
        let change = (quantile(rates, 0.5) / baseline - 1.0) * 100.0;
        println!("{name:<11} {}  {change:+.1} %", spread(rates));
    }
}

/// For each page of the target, whether it is in the set.
fn set_membership() -> Vec<bool> {
    let nr_pages = (BYTES / PAGE_SIZE) as usize;
    let mut is_in_set = vec![false; nr_pages];
    set_of(nr_pages, SET)
        .iter()
        .for_each(|page| is_in_set[*page] = true);
    is_in_set
}

/// How many accesses to the set, and how many logged accesses, the passes find.
fn accuracy(arms: &mut [Arm], target: &mut ScannedChild, processes: &Processes) {
    const PASSES: usize = 12;
    let is_in_set = set_membership();
    let in_set = is_in_set.iter().filter(|is| **is).count();
    println!("\n{PASSES} passes, one per second: the set of {in_set} pages, and single accesses elsewhere");
    for arm in arms {
        target.spin(SET);
        for _ in 0..2 {
            arm.pass(processes, target.range, |_| ());
        }
        target.log(SET);
        let mut passes: Vec<(Nanos, Nanos, Vec<bool>)> = Vec::new();
        for _ in 0..PASSES {
            sleep(Duration::from_secs(1));
            let began = clock::monotonic();
            let mut seen = Vec::with_capacity(is_in_set.len());
            arm.pass(processes, target.range, |chunk| {
                let range = chunk.range();
                let addrs = (range.start.0..range.end.0).step_by(PAGE_SIZE as usize);
                seen.extend(addrs.map(|addr| chunk.get(Addr(addr)) == ScanResult::Accessed));
            });
            passes.push((began, clock::monotonic(), seen));
        }
        let log = target.logged();
        target.stop();
        print_accuracy(arm.name, &passes, &log, &is_in_set);
    }
}

fn print_accuracy(
    name: &str,
    passes: &[(Nanos, Nanos, Vec<bool>)],
    log: &[(Nanos, usize)],
    is_in_set: &[bool],
) {
    let found: Vec<f64> = passes
        .iter()
        .map(|(_, _, seen)| {
            let both = seen
                .iter()
                .zip(is_in_set)
                .filter(|(seen, is)| **seen && **is)
                .count();
            both as f64 / is_in_set.iter().filter(|is| **is).count() as f64
        })
        .collect();
    // An access during a pass may be found by that pass or by the next one.
    let last = passes.last().unwrap().0;
    let (mut accesses, mut missed) = (0, 0);
    for (at, page) in log.iter().filter(|(at, _)| *at < last) {
        let first = passes.iter().position(|(_, end, _)| end > at).unwrap();
        let is_during = passes[first].0 <= *at;
        let candidates = &passes[first..=(first + usize::from(is_during)).min(passes.len() - 1)];
        accesses += 1;
        missed += usize::from(!candidates.iter().any(|(_, _, seen)| seen[*page]));
    }
    // Pages reported as accessed that were not accessed.
    let mut false_positives = 0;
    for pair in passes.windows(2) {
        let mut was_accessed = is_in_set.to_vec();
        let since = log.iter().filter(|(at, _)| *at >= pair[0].0 && *at <= pair[1].1);
        since.for_each(|(_, page)| was_accessed[*page] = true);
        false_positives += pair[1]
            .2
            .iter()
            .zip(&was_accessed)
            .filter(|(seen, was)| **seen && !**was)
            .count();
    }
    println!(
        "{name:<11} share of the set found {:.5} (minimum {:.5}); {missed} of {accesses} single accesses missed ({:.4} %); \
         {false_positives} false positives",
        quantile(&found, 0.5),
        quantile(&found, 0.0),
        missed as f64 * 100.0 / accesses as f64
    );
}

/// Deactivates all pages, then activates every second block of 64 pages of `idle`.
fn activate_half(arm: &mut Arm, target: &mut ScannedChild, processes: &Processes, idle: &[usize]) {
    arm.tracker.fix_gap(511);
    target.read_all();
    arm.pass(processes, target.range, |_| ());
    let chosen: Vec<Addr> = idle
        .iter()
        .filter(|nth| *nth / 64 % 2 == 0)
        .map(|nth| target.page(*nth))
        .collect();
    for addrs in chosen.chunks(MAX_PAGES).flat_map(|addrs| [addrs; 3]) {
        let _ = touch(processes[&TargetId(0)].pid, addrs);
    }
}

/// Number of active pages outside of the set before and after ten passes. Half of these pages were activated
/// before.
fn lists(arms: &mut [Arm], target: &mut ScannedChild, processes: &Processes) {
    let Ok(frames) = PageFrames::open(Path::new("/")) else {
        return println!("SKIP: /proc/kpageflags cannot be read");
    };
    let is_in_set = set_membership();
    let idle: Vec<usize> = (0..is_in_set.len()).filter(|page| !is_in_set[*page]).collect();
    let range = target.range;
    let is_active = |process: &Process| -> Vec<bool> {
        let mut pages = Vec::new();
        let map = Pagemap::open(Path::new("/"), process.pid).unwrap();
        map.read(range, &mut pages).unwrap();
        let flags = idle
            .iter()
            .map(|nth| frames.flags(pages[*nth].pfn().unwrap_or(0)));
        flags
            .map(|flags| flags.is_ok_and(|flags| flags.is_active()))
            .collect()
    };
    println!("\nactive pages outside of the set; ten passes over the busy target");
    for arm in arms {
        let process = &processes[&TargetId(0)];
        activate_half(arm, target, processes, &idle);
        match arm.name {
            "gap 0" => arm.tracker.fix_gap(0),
            _ => arm.tracker.fix_gap(128),
        }
        let before = is_active(process);
        target.spin(SET);
        for _ in 0..10 {
            sleep(Duration::from_millis(100));
            arm.pass(processes, target.range, |_| ());
        }
        target.stop();
        let after = is_active(process);
        let count = |was: bool, is: bool| {
            before
                .iter()
                .zip(&after)
                .filter(|pair| *pair == (&was, &is))
                .count()
        };
        println!(
            "{:<11} {} of {} active before: {} stayed active, {} became inactive; of {} inactive {} became active",
            arm.name,
            count(true, true) + count(true, false),
            idle.len(),
            count(true, true),
            count(true, false),
            count(false, true) + count(false, false),
            count(false, true)
        );
    }
}
