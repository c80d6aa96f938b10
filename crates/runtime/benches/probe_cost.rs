//! Cost of access checks: a probe (accessed bit cleared, and read later), a whole page table, a scan.
//!
//! `cargo bench -p thermo-runtime --bench probe_cost`
//!
//! For a probe, "raw" is one `process_madvise(MADV_COLD)` of 1000 pages and one run of the BPF program that
//! reads their entries (`unverified`: no check of the entries before, and of the cleared bits after).
//! `verified` adds the two runs for these checks, and gives no advice if no accessed bit is set. For page
//! tables, "raw" is the runs that copy them, and a count of entries that are not zero, without decoding them.

#![allow(clippy::unwrap_used, reason = "a failed benchmark panics")]

#[path = "../tests/common/mod.rs"]
mod common;
mod measure;

use std::hint::black_box;
use std::ops::ControlFlow;

use common::Target;
use common::access::probe;
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
const SCANS: usize = 11;
const MEMORY: Bytes = Bytes::gib(1);

fn main() {
    common::run_if_child();
    let mut tracker = match PteTracker::new() {
        Ok(tracker) => tracker,
        Err(why) => return println!("SKIP: {why}"),
    };
    let mut target = Target::start(MEMORY.0);
    print_head("one probe (1000 per call)");
    for (name, accessed, verified) in [
        ("pages accessed, raw unverified", true, false),
        ("pages accessed, raw verified", true, true),
        ("pages idle, raw unverified", false, false),
        ("pages idle, raw verified", false, true),
    ] {
        probes_cost(&mut tracker, &mut target, name, accessed, verified);
    }
    small_and_huge(&mut tracker, &mut target, "4 KiB pages");
    target.collapse();
    small_and_huge(&mut tracker, &mut target, "2 MiB pages");
}

fn small_and_huge(tracker: &mut PteTracker, target: &mut Target, pages: &str) {
    print_head(&format!("a GiB of {pages}"));
    whole_tables(tracker, target);
    println!("{:<44} {:>12} {:>12} {:>23}", "", "median", "", "quartiles");
    scans(tracker, target, "scan, all pages accessed since the last", true);
    scans(tracker, target, "scan, no page accessed", false);
    young_folios(tracker, target);
}

/// Probes at equal distances over the whole target.
fn probes_of(target: &Target) -> Vec<Probe> {
    let stride = (MEMORY.0 / 4096) as usize / NR_PROBES;
    target
        .pages()
        .step_by(stride)
        .take(NR_PROBES)
        .map(probe)
        .collect()
}

fn probes_cost(tracker: &mut PteTracker, target: &mut Target, name: &str, accessed: bool, verified: bool) {
    let processes = target.processes();
    let mut probes = probes_of(target);
    let addrs: Vec<Addr> = probes.iter().map(|probe| probe.addr).collect();
    let page = |addr: &Addr| AddrRange::new(addr.0, addr.0 + 4096);
    let pages: Vec<AddrRange> = addrs.iter().map(page).collect();
    let all = target.range;
    let pair = Pair::measure(ROUNDS, |method| {
        if accessed {
            target.touch(all);
        }
        match method {
            Method::Ours => time(|| {
                tracker.prepare(&processes, &probes);
                tracker.check(&processes, &mut probes);
            }),
            Method::Raw => time(|| {
                let pages: &[AddrRange] = if accessed || !verified { &pages } else { &[] };
                let reads = if verified { 3 } else { 1 };
                raw_check(tracker.tables(), &processes, pages, &addrs, reads);
            }),
        }
    });
    pair.print(name, NR_PROBES as f64 * 1000.0, "µs", false);
}

/// Clears the accessed bits of `pages`, and reads the entries of `addrs` `reads` times.
fn raw_check(
    tables: &mut PageTables,
    processes: &Processes,
    pages: &[AddrRange],
    addrs: &[Addr],
    reads: usize,
) {
    let process = &processes[&TargetId(0)];
    for call in pages.chunks(MAX_RANGES) {
        process_madvise(&process.pidfd, call, Advice::Cold).unwrap();
    }
    let mut entries = Vec::with_capacity(addrs.len());
    for _ in 0..reads {
        tables
            .entries(process.pid, addrs, Folios::None, &mut entries)
            .unwrap();
    }
    black_box(entries);
}

fn whole_tables(tracker: &mut PteTracker, target: &Target) {
    let (pid, range) = (target.pid(), target.range);
    let layout = *tracker.tables().layout();
    let mut count = 0_u64;
    let pair = Pair::measure(ROUNDS, |method| {
        let tables = tracker.tables();
        match method {
            Method::Ours => time(|| {
                let mut visit = |table: thermo_pagetable::Table<'_>| {
                    let entries = table.entries.iter();
                    let is_accessed = |raw: &&u64| {
                        let entry = layout.decode(**raw, table.level);
                        matches!(entry, Entry::Leaf(leaf) if leaf.accessed)
                    };
                    count += entries.filter(is_accessed).count() as u64;
                    ControlFlow::Continue(())
                };
                tables.tables(pid, range, Folios::None, &mut visit).unwrap();
            }),
            Method::Raw => time(|| {
                let mut visit = |table: thermo_pagetable::Table<'_>| {
                    count += table.entries.iter().filter(|raw| **raw != 0).count() as u64;
                    ControlFlow::Continue(())
                };
                tables.tables(pid, range, Folios::None, &mut visit).unwrap();
            }),
        }
    });
    black_box(count);
    pair.print("reading all page tables", 1e6, "ms", false);
}

fn scans(tracker: &mut PteTracker, target: &mut Target, name: &str, accessed: bool) {
    let processes = target.processes();
    let process = &processes[&TargetId(0)];
    let all = target.range;
    let mut chunk = ScanChunk::default();
    let once = |_| {
        if accessed {
            target.touch(all);
        }
        chunk.reset(all);
        time(|| {
            // If in-kernel DAMON runs, this makes the scan read the young flags of folios.
            tracker.begin_pass(process);
            black_box(tracker.scan(process, all, &mut chunk));
        })
    };
    print_median(name, (0..SCANS).map(once));
}

/// Cost of reading the young flags of the folios of all pages without an accessed bit.
fn young_folios(tracker: &mut PteTracker, target: &mut Target) {
    if let Err(why) = tracker.young_support() {
        return println!("SKIP: {why}");
    }
    let (pid, range) = (target.pid(), target.range);
    let tables = tracker.tables();
    let once = |_| {
        time(|| {
            tables
                .tables(pid, range, Folios::NotAccessed, &mut |table| {
                    black_box(table.young);
                    ControlFlow::Continue(())
                })
                .unwrap();
        })
    };
    print_median("reading all tables and young flags", (0..SCANS).map(once));
}

fn print_median(name: &str, times: impl Iterator<Item = f64>) {
    let times: Vec<f64> = times.map(|ns| ns / 1e6).collect();
    println!(
        "{name:<44} {:>12} {:>12} {:>23}",
        format!("{:.3} ms", quantile(&times, 0.5)),
        "",
        format!("{:.3}..{:.3}", quantile(&times, 0.25), quantile(&times, 0.75))
    );
}
