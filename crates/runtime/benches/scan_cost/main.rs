//! What a scan of a GiB costs, how much it slows its target down, what it misses, and what it does to the LRU lists: with
//! gaps between accessed pages bridged and without.
//!
//! `cargo bench -p thermo-runtime --bench scan_cost [-- cost|slow-down|accuracy|lists]`
//!
//! The target accesses 35 random pages of every 2 MiB again and again on CPU 1; passes run on CPU 0.

#![allow(clippy::unwrap_used, reason = "what cannot be measured has nothing to report")]

mod child;
#[path = "../measure/mod.rs"]
mod measure;

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use child::{Scanned, set_of};
use measure::{is_asked_for, quantile};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::TargetId;
use thermo_engine::scan::{PageSeen, ScanChunk};
use thermo_kernel::clock;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::process_vm::{MAX_PAGES, touch};
use thermo_targets::{Process, Processes};
use thermo_units::{Addr, AddrRange, Nanos, PAGE_SIZE};

const BYTES: u64 = 1 << 30;
/// As large as the pieces that contexts scan.
const PIECE: u64 = 64 << 20;
const SET: usize = 35;
const ROUNDS: usize = 5;
/// Gaps: adjacent pages alone, a fixed one, and what the tracker learns.
const ARMS: [(&str, Option<u64>); 3] = [("gap 0", Some(0)), ("gap 128", Some(128)), ("calibrated", None)];

struct Arm {
    name: &'static str,
    tracker: PteTracker,
    piece: ScanChunk,
    /// Whether all pages count as accessed in each of the last passes.
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
                piece: ScanChunk::default(),
                is_steady: false,
            })
        };
        ARMS.into_iter().map(arm).collect()
    }

    /// A pass over `range`; calls `each` with what each piece found. Returns CPU time and ranges.
    fn pass(
        &mut self,
        processes: &Processes,
        range: AddrRange,
        mut each: impl FnMut(&ScanChunk),
    ) -> (Nanos, u64) {
        let before = (clock::thread_cpu(), self.tracker.clear_stats().ranges);
        let mut spent = Nanos::ZERO;
        self.tracker.begin_pass(&processes[&TargetId(0)]);
        for start in (range.start.0..range.end.0).step_by(PIECE as usize) {
            let piece = AddrRange::new(start, (start + PIECE).min(range.end.0));
            self.piece.reset(piece);
            let words = (start..piece.end.0)
                .step_by(64 * PAGE_SIZE as usize)
                .filter(|_| self.is_steady);
            words.for_each(|word| self.piece.set_steady(Addr(word)));
            self.tracker
                .scan(&processes[&TargetId(0)], piece, &mut self.piece);
            let began = clock::thread_cpu();
            each(&self.piece);
            spent += clock::thread_cpu().saturating_sub(began);
        }
        let took = clock::thread_cpu().saturating_sub(before.0);
        (
            took.saturating_sub(spent),
            self.tracker.clear_stats().ranges - before.1,
        )
    }
}

fn main() {
    child::live();
    let Some(mut arms) = Arm::all() else { return };
    let mut target = Scanned::start(BYTES);
    let processes = Processes::from([(TargetId(0), target.process())]);
    child::run_on(0);
    for (name, measure) in [
        ("cost", cost as fn(&mut [Arm], &mut Scanned, &Processes)),
        ("slow-down", slow_down),
        ("accuracy", accuracy),
        ("lists", lists),
    ] {
        if is_asked_for(name) {
            measure(&mut arms, &mut target, &processes);
        }
    }
}

fn spread(values: &[f64]) -> String {
    let at = |share| quantile(values, share);
    format!("{:>9.2}  ({:.2} to {:.2})", at(0.5), at(0.0), at(1.0))
}

/// CPU time and ranges of a pass.
fn cost(arms: &mut [Arm], target: &mut Scanned, processes: &Processes) {
    println!("\n{:<34} {:>28} {:>28}", "a pass over 1 GiB", "CPU ms", "ranges");
    for (what, each, spins, reads) in [
        ("busy, 35 of 512 pages", SET, true, false),
        ("busy, 8 of 512 pages", 8, true, false),
        ("busy, 200 of 512 pages", 200, true, false),
        ("all accessed since, now asleep", 0, false, true),
        ("hot: the same, steady", 0, false, true),
        ("idle", 0, false, false),
    ] {
        if spins {
            target.spin(each);
        }
        let mut found = vec![(Vec::new(), Vec::new()); arms.len()];
        arms.iter_mut()
            .for_each(|arm| arm.is_steady = what.starts_with("hot"));
        for round in 0..=2 * ROUNDS {
            for (arm, (took, ranges)) in arms.iter_mut().zip(&mut found) {
                match reads {
                    true => target.read_all(),
                    false => sleep(Duration::from_millis(100)),
                }
                let (cpu, nr_ranges) = arm.pass(processes, target.range, |_| ());
                // The first rounds clear what is old, and calibrate.
                if round > 2 {
                    took.push(cpu.0 as f64 / 1e6);
                    ranges.push(nr_ranges as f64);
                }
            }
        }
        if spins {
            target.rest();
        }
        for (arm, (took, ranges)) in arms.iter().zip(&found) {
            let gap = arm.tracker.gap(TargetId(0)).unwrap_or_default();
            println!(
                "{what:<34} {:<11} {:>28} {:>28}  gap {gap}",
                arm.name,
                spread(took),
                spread(ranges)
            );
        }
    }
}

/// Accesses of the busy target in a second of its CPU time, with one pass a second and without. (Whatever else the machine
/// runs takes CPU time, but hardly slows it.)
fn slow_down(arms: &mut [Arm], target: &mut Scanned, processes: &Processes) {
    const LASTS: Duration = Duration::from_secs(4);
    target.spin(SET);
    sleep(Duration::from_secs(1));
    let mut rates = vec![Vec::new(); arms.len() + 1];
    for _ in 0..ROUNDS + 1 {
        for (nth, rates) in rates.iter_mut().enumerate() {
            let (began, before) = (Instant::now(), target.count());
            let mut next = began;
            while began.elapsed() < LASTS {
                if let Some(arm) = nth.checked_sub(1).and_then(|nth| arms.get_mut(nth)) {
                    arm.pass(processes, target.range, |_| ());
                }
                next += Duration::from_secs(1);
                sleep(next.saturating_duration_since(Instant::now()));
            }
            let after = target.count();
            let spent = after.1.saturating_sub(before.1).0 as f64;
            rates.push((after.0 - before.0) as f64 * 1e3 / spent);
        }
    }
    target.rest();
    let alone = quantile(&rates[0], 0.5);
    println!("\nmillion accesses in a second of CPU time, one pass a second");
    let names = std::iter::once("alone").chain(arms.iter().map(|arm| arm.name));
    for (name, rates) in names.zip(&rates) {
        let change = (quantile(rates, 0.5) / alone - 1.0) * 100.0;
        println!("{name:<11} {}  {change:+.1} %", spread(rates));
    }
}

/// What passes find of the set, and of single accesses that were noted.
fn accuracy(arms: &mut [Arm], target: &mut Scanned, processes: &Processes) {
    const PASSES: usize = 12;
    let nr_pages = (BYTES / PAGE_SIZE) as usize;
    let mut is_in_set = vec![false; nr_pages];
    set_of(nr_pages, SET)
        .iter()
        .for_each(|page| is_in_set[*page] = true);
    let in_set = is_in_set.iter().filter(|is| **is).count();
    println!("\n{PASSES} passes, one a second: the set of {in_set} pages, and single accesses elsewhere");
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
            let mut seen = Vec::with_capacity(nr_pages);
            arm.pass(processes, target.range, |piece| {
                let range = piece.range();
                let addrs = (range.start.0..range.end.0).step_by(PAGE_SIZE as usize);
                seen.extend(addrs.map(|addr| piece.get(Addr(addr)) == PageSeen::Accessed));
            });
            passes.push((began, clock::monotonic(), seen));
        }
        let log = target.logged();
        target.rest();
        tell_accuracy(arm.name, &passes, &log, &is_in_set);
    }
}

fn tell_accuracy(
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
    // An access during a pass may be found by that or by the next.
    let last = passes.last().unwrap().0;
    let (mut of, mut lost) = (0, 0);
    for (at, page) in log.iter().filter(|(at, _)| *at < last) {
        let first = passes.iter().position(|(_, end, _)| end > at).unwrap();
        let is_during = passes[first].0 <= *at;
        let may = &passes[first..=(first + usize::from(is_during)).min(passes.len() - 1)];
        of += 1;
        lost += usize::from(!may.iter().any(|(_, _, seen)| seen[*page]));
    }
    // What is found accessed and was not.
    let mut made_up = 0;
    for pair in passes.windows(2) {
        let mut was_accessed = is_in_set.to_vec();
        let since = log.iter().filter(|(at, _)| *at >= pair[0].0 && *at <= pair[1].1);
        since.for_each(|(_, page)| was_accessed[*page] = true);
        made_up += pair[1]
            .2
            .iter()
            .zip(&was_accessed)
            .filter(|(seen, was)| **seen && !**was)
            .count();
    }
    println!(
        "{name:<11} of the set found {:.5} (least {:.5}); of {of} single accesses lost {lost} ({:.4} %); {made_up} made up",
        quantile(&found, 0.5),
        quantile(&found, 0.0),
        lost as f64 * 100.0 / of as f64
    );
}

/// How many pages outside of the set are active before and after passes: half of them were made so.
fn lists(arms: &mut [Arm], target: &mut Scanned, processes: &Processes) {
    let Ok(frames) = PageFrames::open(Path::new("/")) else {
        return println!("SKIP: the flags of frames cannot be read");
    };
    let nr_pages = (BYTES / PAGE_SIZE) as usize;
    let mut is_in_set = vec![false; nr_pages];
    set_of(nr_pages, SET)
        .iter()
        .for_each(|page| is_in_set[*page] = true);
    let idle: Vec<usize> = (0..nr_pages).filter(|page| !is_in_set[*page]).collect();
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
    println!("\npages outside of the set that were made active, or not; ten passes over the busy target");
    for arm in arms {
        let process = &processes[&TargetId(0)];
        // All inactive, then every second block of 64 pages active.
        arm.tracker.fix_gap(511);
        target.read_all();
        arm.pass(processes, target.range, |_| ());
        let chosen: Vec<Addr> = idle
            .iter()
            .filter(|nth| *nth / 64 % 2 == 0)
            .map(|nth| target.page(*nth))
            .collect();
        for addrs in chosen.chunks(MAX_PAGES).flat_map(|addrs| [addrs; 3]) {
            let _ = touch(process.pid, addrs);
        }
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
        target.rest();
        let after = is_active(process);
        let count = |was: bool, is: bool| {
            before
                .iter()
                .zip(&after)
                .filter(|pair| *pair == (&was, &is))
                .count()
        };
        println!(
            "{:<11} active before {} of {}: {} stay active, {} became inactive; of {} inactive {} became active",
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
