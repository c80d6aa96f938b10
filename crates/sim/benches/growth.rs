//! Measures what 1 % of a CPU achieves on targets of up to a TiB, and the engine's own cost:
//! `cargo bench -p thermo-sim --bench growth`.
//!
//! The page tables are synthetic; the costs of monitoring are those of a real machine (`probe_cost` of ops).
//! 1/64 of the target is hot, in 16 ranges. `GROWTH_MIB="64 1024"` sets the sizes, `GROWTH_SECONDS` the
//! simulated time per size.

#![allow(clippy::unwrap_used, reason = "in a benchmark a panic is the report")]

use std::process::Command;
use std::time::Instant;

use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::{Attrs, Context, Event, Region};
use thermo_sim::{MonitoringCost, SyntheticProcess, run};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

const BEGIN: u64 = 1 << 40;
const RUNS: u64 = 16;
const HOT_PART: u64 = 64;
/// Environment variable with the size and leaf size for a child process.
const CHILD_TARGET: &str = "GROWTH_ONE";

/// Costs with pages of 4 KiB: medians of a machine of 2026 (`scan_cost` of runtime: an idle GiB, a page in a
/// range).
const SMALL: MonitoringCost = MonitoringCost {
    probe: Nanos(2000),
    read_gib: Nanos(690_000),
    clear_bit: Nanos(80),
};
/// Costs with pages of 2 MiB, from the same machine.
const HUGE: MonitoringCost = MonitoringCost {
    probe: Nanos(2000),
    read_gib: Nanos(390_000),
    clear_bit: Nanos(400),
};

fn main() {
    // `cargo test --all-targets` also runs this, but without `--bench`.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    if let Ok(target) = std::env::var(CHILD_TARGET) {
        return monitor_named(&target);
    }
    println!("{} s of 1 % of a CPU, simulated", seconds());
    println!(
        "real: time on this machine per simulated second, simulation included; memory: of the engine, per monitored GiB"
    );
    println!(
        "{:<20} {:<7} {:>8} {:>9} {:>10} {:>9} {:>8} {:>12} {:>10}",
        "target", "method", "pass", "cpu", "hot found", "right", "regions", "real", "memory"
    );
    let sizes = std::env::var("GROWTH_MIB").unwrap_or("64 1024 16384 131072 1048576".to_owned());
    for leaf in [PAGE_SIZE, PAGE_SIZE << 9] {
        for mib in sizes.split_whitespace() {
            // Each size runs in its own process, so that memory freed by an earlier size does not hide
            // growth.
            let mut child = Command::new(std::env::current_exe().unwrap());
            let status = child
                .arg("--bench")
                .env(CHILD_TARGET, format!("{mib} {leaf}"))
                .status();
            assert!(status.unwrap().success());
        }
    }
}

fn seconds() -> u64 {
    std::env::var("GROWTH_SECONDS").map_or(300, |seconds| seconds.parse().unwrap())
}

/// Monitors the target given as "MIB LEAF_BYTES".
fn monitor_named(name: &str) {
    let (mib, leaf) = name.split_once(' ').unwrap();
    let (size, leaf) = (Bytes::mib(mib.parse().unwrap()), Bytes(leaf.parse().unwrap()));
    let (cost, pages) = match leaf.0 {
        PAGE_SIZE => (SMALL, "4 KiB"),
        _ => (HUGE, "2 MiB"),
    };
    monitor(size, leaf, cost, pages, Nanos::secs(seconds()));
}

fn monitor(size: Bytes, leaf: Bytes, cost: MonitoringCost, pages: &str, length: Nanos) {
    let before = resident();
    let mut machine = SyntheticProcess::new(
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
    let spent = thermo_sim::SimulatedMachine::spent_monitoring(&machine);
    let plan = context.plan().unwrap();
    let (found, right) = accuracy(&regions, machine.hot(), plan.attrs.max_nr_accesses());
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
        // An odd position, so that range borders do not coincide with halves and quarters of the target.
        let start = BEGIN + nth * part + part * 5 / 13 / leaf.0 * leaf.0;
        AddrRange::new(start, start + len)
    };
    (0..RUNS).map(run).collect()
}

/// The share of hot memory that was found, and the share of found memory that is hot (recall and precision).
fn accuracy(regions: &[Region], hot: &[AddrRange], max_nr_accesses: u32) -> (f64, f64) {
    let reported: Vec<AddrRange> = regions
        .iter()
        .filter(|region| region.nr_accesses * 2 >= max_nr_accesses.max(1))
        .map(|region| region.range)
        .collect();
    let sum = |ranges: &[AddrRange]| ranges.iter().map(|range| range.len().0).sum::<u64>();
    let both = hot
        .iter()
        .flat_map(|hot| reported.iter().filter_map(|range| hot.intersection(range)));
    let both: Vec<AddrRange> = both.collect();
    let part = |of: u64| {
        if of == 0 {
            0.0
        } else {
            sum(&both) as f64 / of as f64
        }
    };
    (part(sum(hot)), part(sum(&reported)))
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * PAGE_SIZE
}
