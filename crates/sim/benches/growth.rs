//! What a hundredth of a CPU buys on ever larger targets, up to a TiB, and what the engine itself takes for it:
//! `cargo bench -p thermo-sim --bench growth`.
//!
//! The page tables are synthetic; looking at them costs what was measured on a real machine (`probe_cost` of ops). A
//! 64th of the target is hot, in 16 runs. `GROWTH_MIB="64 1024"` names the sizes, `GROWTH_SECONDS` how long each is
//! watched, in simulated time.

#![allow(clippy::unwrap_used, reason = "in a benchmark a panic is the report")]

use std::process::Command;
use std::time::Instant;

use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::{Attrs, Context, Event, Region};
use thermo_sim::{Expanse, LookingCost, run};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

const BEGIN: u64 = 1 << 40;
const RUNS: u64 = 16;
const HOT_PART: u64 = 64;
/// What names the one target that a process of its own watches.
const ONE: &str = "GROWTH_ONE";

/// Medians of a machine of 2026: pages of 4 KiB, and of 2 MiB, which the other two figures are of.
const SMALL: LookingCost = LookingCost {
    probe: Nanos(2000),
    gib: Nanos(2_200_000),
    mark: Nanos(100),
};
const HUGE: LookingCost = LookingCost {
    probe: Nanos(2000),
    gib: Nanos(390_000),
    mark: Nanos(400),
};

fn main() {
    // `cargo test --all-targets` runs this too, without the argument of `cargo bench`.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    if let Ok(one) = std::env::var(ONE) {
        return watch_one(&one);
    }
    println!("{} s of 1 % of a CPU, simulated", seconds());
    println!(
        "real: what a second took here, the tables' simulation included; memory: of the engine, a GiB watched"
    );
    println!(
        "{:<20} {:<7} {:>8} {:>9} {:>10} {:>9} {:>8} {:>12} {:>10}",
        "target", "method", "pass", "looking", "hot found", "right", "regions", "real", "memory"
    );
    let sizes = std::env::var("GROWTH_MIB").unwrap_or("64 1024 16384 131072 1048576".to_owned());
    for leaf in [PAGE_SIZE, PAGE_SIZE << 9] {
        for mib in sizes.split_whitespace() {
            // Each in a process of its own, so that nothing freed before is used again unseen.
            let mut this = Command::new(std::env::current_exe().unwrap());
            let status = this.arg("--bench").env(ONE, format!("{mib} {leaf}")).status();
            assert!(status.unwrap().success());
        }
    }
}

fn seconds() -> u64 {
    std::env::var("GROWTH_SECONDS").map_or(300, |seconds| seconds.parse().unwrap())
}

/// Watches the target that is named by its MiB and the bytes of its leaves.
fn watch_one(name: &str) {
    let (mib, leaf) = name.split_once(' ').unwrap();
    let (size, leaf) = (Bytes::mib(mib.parse().unwrap()), Bytes(leaf.parse().unwrap()));
    let (cost, pages) = match leaf.0 {
        PAGE_SIZE => (SMALL, "4 KiB"),
        _ => (HUGE, "2 MiB"),
    };
    watch(size, leaf, cost, pages, Nanos::secs(seconds()));
}

fn watch(size: Bytes, leaf: Bytes, cost: LookingCost, pages: &str, length: Nanos) {
    let before = resident();
    let mut machine = Expanse::new(
        AddrRange::new(BEGIN, BEGIN + size.0),
        hot_runs(size, leaf),
        leaf,
        cost,
    );
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(CpuShare(10_000), MethodPolicy::Auto);
    let (mut regions, mut pass): (Vec<Region>, _) = (Vec::new(), Nanos::ZERO);
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { targets, .. } = event
            && let Some(target) = targets.first()
        {
            regions = target.regions.to_vec();
            pass = target.tables.map_or(Nanos::ZERO, |tables| tables.pass);
        }
    };
    let began = Instant::now();
    run(
        &mut context,
        &mut machine,
        &mut sink,
        Nanos::ZERO,
        length,
        |_, _| (),
    )
    .unwrap();
    let real = began.elapsed().as_secs_f64();
    let spent = thermo_sim::Simulated::spent_monitoring(&machine);
    let plan = context.plan().unwrap();
    let (found, right) = judged(&regions, machine.hot(), plan.attrs.max_nr_accesses());
    let seconds = length.0 as f64 / 1e9;
    println!(
        "{:<20} {:<7} {:>8} {:>7.2} % {:>8.1} % {:>7.1} % {:>8} {:>9.3} ms {:>6.0} KiB",
        format!("{size} of {pages}"),
        plan.method.name(),
        pass.to_string(),
        100.0 * spent.0 as f64 / length.0 as f64,
        100.0 * found,
        100.0 * right,
        regions.len(),
        1000.0 * real / seconds,
        resident().saturating_sub(before) as f64 / 1024.0 / (size.0 as f64 / Bytes::gib(1).0 as f64),
    );
}

fn hot_runs(size: Bytes, leaf: Bytes) -> Vec<AddrRange> {
    let part = size.0 / RUNS;
    let len = (part / HOT_PART).max(leaf.0) / leaf.0 * leaf.0;
    let run = |nth: u64| {
        // Not where halves and quarters of the target meet.
        let start = BEGIN + nth * part + part * 5 / 13 / leaf.0 * leaf.0;
        AddrRange::new(start, start + len)
    };
    (0..RUNS).map(run).collect()
}

/// How much of what is hot was found, and how much of what was found is hot.
fn judged(regions: &[Region], hot: &[AddrRange], most: u32) -> (f64, f64) {
    let said: Vec<AddrRange> = regions
        .iter()
        .filter(|region| region.nr_accesses * 2 >= most.max(1))
        .map(|region| region.range)
        .collect();
    let sum = |ranges: &[AddrRange]| ranges.iter().map(|range| range.len().0).sum::<u64>();
    let both = hot
        .iter()
        .flat_map(|hot| said.iter().filter_map(|said| hot.intersection(said)));
    let both: Vec<AddrRange> = both.collect();
    let part = |of: u64| {
        if of == 0 {
            0.0
        } else {
            sum(&both) as f64 / of as f64
        }
    };
    (part(sum(hot)), part(sum(&said)))
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * PAGE_SIZE
}
