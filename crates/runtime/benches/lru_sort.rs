//! Pages moved up and down the LRU lists per second of CPU time, compared with bare system calls on the same
//! pages.
//!
//! `cargo bench -p thermo-runtime --bench lru_sort`
//!
//! "Ours" is the actor: residency check, calls, check of the result. "Raw" is two `process_vm_readv` of each
//! page, 1024 pages per call, and `process_madvise` of the ranges, 1024 ranges per call. For unmapped page
//! cache, "raw" is two `preadv2` of each page, or a mapping with `mincore`, `MADV_POPULATE_READ` and
//! `MADV_COLD`, without the check for shared pages.
#![allow(clippy::unwrap_used, reason = "a failed benchmark panics")]

#[path = "../tests/common/mod.rs"]
mod common;
mod measure;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use common::Target;
use measure::{Method, Pair, print_head, time};
use thermo_actions::page_cache::PageCacheSorter;
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::ops::{Request, TargetRange};
use thermo_engine::{Action, TargetId};
use thermo_kernel::page_cache::CachedFile;
use thermo_kernel::process_madvise::{Advice, MAX_RANGES, process_madvise};
use thermo_kernel::process_vm::{MAX_PAGES, touch};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

const MEMORY: Bytes = Bytes::mib(256);
const PAGES: u64 = MEMORY.0 / PAGE_SIZE;
const ROUNDS: usize = 7;

fn main() {
    common::run_if_child();
    let mut target = Target::start(MEMORY.0);
    print_head("million pages a CPU second, ratio");
    for regions in [16, 1000] {
        for action in [Action::LruPrio, Action::LruDeprio] {
            mapped(&mut target, action, regions);
        }
    }
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), vec![7; MEMORY.0 as usize]).unwrap();
    file.as_file().sync_all().unwrap();
    for action in [Action::LruPrio, Action::LruDeprio] {
        cached(file.path(), action);
    }
}

fn print(pair: &Pair, name: &str) {
    // Converts nanoseconds for all pages to million pages per second.
    pair.print_rates(name, PAGES as f64 * 1e3, "M/s");
}

fn mapped(target: &mut Target, action: Action, regions: u64) {
    let all = target.range;
    let range_len = (PAGES / regions) * PAGE_SIZE;
    let starts = (0..regions).map(|n| all.start.0 + n * range_len);
    let ranges: Vec<AddrRange> = starts
        .map(|start| AddrRange::new(start, start + range_len))
        .collect();
    let runs = ranges.iter().map(|range| TargetRange {
        target: TargetId(0),
        range: *range,
    });
    let runs: Vec<TargetRange> = runs.collect();
    let mut actor = Actor::new(PageoutLimits::default(), false);
    let pair = Pair::measure(ROUNDS, |method| {
        target.touch(all);
        let processes = target.processes();
        let process = &processes[&TargetId(0)];
        time(|| match (method, action) {
            (Method::Ours, _) => {
                let request = Request {
                    action,
                    ranges: &runs,
                    filters: &[],
                    destinations: &[],
                };
                actor.apply(&processes, &request, None).unwrap();
            }
            (Method::Raw, Action::LruPrio) => {
                let pages: Vec<Addr> = (all.start.0..all.end.0).step_by(4096).map(Addr).collect();
                for call in pages.chunks(MAX_PAGES) {
                    touch(process.pid, call).unwrap();
                    touch(process.pid, call).unwrap();
                }
            }
            (Method::Raw, _) => {
                for call in ranges.chunks(MAX_RANGES) {
                    process_madvise(&process.pidfd, call, Advice::Cold).unwrap();
                }
            }
        })
    });
    print(
        &pair,
        &format!("{action}, {regions} ranges of {}", Bytes(range_len)),
    );
}

fn cached(path: &Path, action: Action) {
    let cancel = AtomicBool::new(false);
    let all: Vec<u64> = (0..PAGES).collect();
    let sorter = PageCacheSorter {
        max_bytes: None,
        dry_run: false,
        cancel: &cancel,
    };
    let pair = Pair::measure(ROUNDS, |method| {
        time(|| match (method, action) {
            (Method::Ours, _) => {
                sorter.apply(action, path).unwrap();
            }
            (Method::Raw, Action::LruPrio) => {
                CachedFile::open(path).unwrap().mark_accessed(&all, 2).unwrap();
            }
            (Method::Raw, _) => {
                let file = CachedFile::open(path).unwrap();
                let window = file.window(0, PAGES).unwrap();
                let resident = window.resident().unwrap();
                assert_eq!(window.populate(&resident), PAGES);
                window.deactivate().unwrap();
            }
        })
    });
    print(&pair, &format!("{action}, page cache of {MEMORY}"));
}
