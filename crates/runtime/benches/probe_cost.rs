//! What looking costs: a probe (its mark taken off, and looked for later), a whole table, a sweep.
//!
//! `cargo bench -p thermo-runtime --bench probe_cost`
//!
//! Raw, for a probe, is a `process_madvise(MADV_COLD)` of 1000 pages and one run of the BPF program that reads their
//! entries (`unverified`: neither is known beforehand what maps them, nor afterwards whether the mark went), or with
//! the two more runs that tell these (`verified`; no advice where no mark is set). For tables it is the runs that
//! copy them, and the words of the copies counted without being understood.

#![allow(clippy::unwrap_used, reason = "what cannot be measured has nothing to report")]

#[path = "../tests/common/mod.rs"]
mod common;
mod measure;

use std::hint::black_box;
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;

use common::Target;
use common::look::probe;
use measure::{Method, Pair, print_head, quantile, time};
use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::TargetId;
use thermo_engine::ops::Probe;
use thermo_engine::scan::ScanChunk;
use thermo_kernel::process_madvise::{Advice, MAX_RANGES, process_madvise};
use thermo_pagetable::{Entry, Folios, PageTables};
use thermo_targets::Processes;
use thermo_units::{Addr, AddrRange, Bytes};

const NR_PROBES: usize = 1000;
const ROUNDS: usize = 41;
const SWEEPS: usize = 11;
const MEMORY: Bytes = Bytes::gib(1);

fn main() {
    common::live_as_child();
    let mut tracker = match PteTracker::new() {
        Ok(tracker) => tracker,
        Err(why) => return println!("SKIP: {why}"),
    };
    let mut target = Target::start(MEMORY.0);
    print_head("one probe (of 1000 at once)");
    for (name, touched, verified) in [
        ("pages touched, raw unverified", true, false),
        ("pages touched, raw verified", true, true),
        ("pages idle, raw unverified", false, false),
        ("pages idle, raw verified", false, true),
    ] {
        probes_cost(&mut tracker, &mut target, name, touched, verified);
    }
    small_and_huge(&mut tracker, &mut target, "4 KiB pages");
    target.collapse();
    small_and_huge(&mut tracker, &mut target, "2 MiB pages");
}

fn small_and_huge(tracker: &mut PteTracker, target: &mut Target, pages: &str) {
    print_head(&format!("a GiB of {pages}"));
    whole_tables(tracker, target);
    println!("{:<44} {:>12} {:>12} {:>23}", "", "median", "", "quartiles");
    sweeps(tracker, target, "sweep, all touched since the last", true);
    sweeps(tracker, target, "sweep, nothing touched", false);
    folios(tracker, target);
}

/// Pages far enough apart that no two share anything.
fn probes_of(target: &Target) -> Vec<Probe> {
    let stride = (MEMORY.0 / 4096) as usize / NR_PROBES;
    target
        .pages()
        .step_by(stride)
        .take(NR_PROBES)
        .map(probe)
        .collect()
}

fn probes_cost(tracker: &mut PteTracker, target: &mut Target, name: &str, touched: bool, verified: bool) {
    let processes = target.processes();
    let mut probes = probes_of(target);
    let addrs: Vec<Addr> = probes.iter().map(|probe| probe.addr).collect();
    let page = |addr: &Addr| AddrRange::new(addr.0, addr.0 + 4096);
    let pages: Vec<AddrRange> = addrs.iter().map(page).collect();
    let all = target.range;
    let pair = Pair::measure(ROUNDS, |way| {
        if touched {
            target.touch(all);
        }
        match way {
            Method::Ours => time(|| {
                tracker.prepare(&processes, &probes);
                tracker.check(&processes, &mut probes);
            }),
            Method::Raw => time(|| {
                let pages: &[AddrRange] = if touched || !verified { &pages } else { &[] };
                let reads = if verified { 3 } else { 1 };
                look_raw(tracker.tables(), &processes, pages, &addrs, reads);
            }),
        }
    });
    pair.print(name, NR_PROBES as f64 * 1000.0, "µs", false);
}

/// Takes the marks off `pages` and reads the entries so many times.
fn look_raw(
    tables: &mut PageTables,
    processes: &Processes,
    pages: &[AddrRange],
    addrs: &[Addr],
    reads: usize,
) {
    let process = &processes[&TargetId(0)];
    for call in pages.chunks(MAX_RANGES) {
        process_madvise(process.pidfd.as_fd(), call, Advice::Cold).unwrap();
    }
    let mut entries = Vec::with_capacity(addrs.len());
    for _ in 0..reads {
        tables
            .entries(process.pid, addrs, Folios::Unasked, &mut entries)
            .unwrap();
    }
    black_box(entries);
}

fn whole_tables(tracker: &mut PteTracker, target: &Target) {
    let (pid, range) = (target.pid(), target.range);
    let layout = *tracker.tables().layout();
    let mut marked = 0_u64;
    let pair = Pair::measure(ROUNDS, |way| {
        let tables = tracker.tables();
        match way {
            Method::Ours => time(|| {
                let mut count = |table: thermo_pagetable::Table<'_>| {
                    let entries = table.entries.iter();
                    let is_marked = |raw: &&u64| matches!(layout.decode(**raw, table.level), Entry::Leaf(leaf) if leaf.accessed);
                    marked += entries.filter(is_marked).count() as u64;
                    ControlFlow::Continue(())
                };
                tables.tables(pid, range, Folios::Unasked, &mut count).unwrap();
            }),
            Method::Raw => time(|| {
                let mut count = |table: thermo_pagetable::Table<'_>| {
                    marked += table.entries.iter().filter(|raw| **raw != 0).count() as u64;
                    ControlFlow::Continue(())
                };
                tables.tables(pid, range, Folios::Unasked, &mut count).unwrap();
            }),
        }
    });
    black_box(marked);
    pair.print("reading all its tables", 1e6, "ms", false);
}

fn sweeps(tracker: &mut PteTracker, target: &mut Target, name: &str, touched: bool) {
    let processes = target.processes();
    let process = &processes[&TargetId(0)];
    let all = target.range;
    let mut piece = ScanChunk::default();
    let once = |_| {
        if touched {
            target.touch(all);
        }
        piece.reset(all);
        time(|| {
            // Where a kdamond runs, this has the sweep look at folios.
            tracker.begin_pass(process);
            black_box(tracker.scan(process, all, &mut piece));
        })
    };
    print_median(name, (0..SWEEPS).map(once));
}

/// What it costs to look at the folios of all pages without a mark.
fn folios(tracker: &mut PteTracker, target: &mut Target) {
    if let Err(why) = tracker.sees_young() {
        return println!("SKIP: {why}");
    }
    let (pid, range) = (target.pid(), target.range);
    let tables = tracker.tables();
    let once = |_| {
        time(|| {
            tables
                .tables(pid, range, Folios::OfUnmarked, &mut |table| {
                    black_box(table.young);
                    ControlFlow::Continue(())
                })
                .unwrap();
        })
    };
    print_median("reading all tables and folios, no marks", (0..SWEEPS).map(once));
}

fn print_median(name: &str, took: impl Iterator<Item = f64>) {
    let took: Vec<f64> = took.map(|ns| ns / 1e6).collect();
    println!(
        "{name:<44} {:>12} {:>12} {:>23}",
        format!("{:.3} ms", quantile(&took, 0.5)),
        "",
        format!("{:.3}..{:.3}", quantile(&took, 0.25), quantile(&took, 0.75))
    );
}
