//! How many pages a second of CPU time moves up and down the LRU lists, beside the bare system calls on the same pages.
//!
//! `cargo bench -p thermo-runtime --bench lru_sort`
//!
//! Ours is the actor: the look at what is there, the calls, the look at what came of them. Raw is two
//! `process_vm_readv` of each page, 1024 in a call, and `process_madvise` of the ranges, 1024 in a call. Page cache that
//! nobody maps has a raw way, too: two `preadv2` of each page; and a mapping, `mincore`, `MADV_POPULATE_READ` and
//! `MADV_COLD`, without the look at which pages others map.
#![allow(clippy::unwrap_used, reason = "what cannot be measured has nothing to report")]

#[path = "../tests/common/mod.rs"]
mod common;
mod measure;

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use common::Target;
use measure::{Method, Pair, print_head, time};
use thermo_actions::page_cache::PageCache;
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
    common::live_as_child();
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
    // Nanoseconds for all pages become million pages a second.
    pair.print_rates(name, PAGES as f64 * 1e3, "M/s");
}

fn mapped(target: &mut Target, action: Action, regions: u64) {
    let all = target.range;
    let part = (PAGES / regions) * PAGE_SIZE;
    let begins = (0..regions).map(|n| all.start.0 + n * part);
    let ranges: Vec<AddrRange> = begins.map(|start| AddrRange::new(start, start + part)).collect();
    let runs = ranges.iter().map(|range| TargetRange {
        target: TargetId(0),
        range: *range,
    });
    let runs: Vec<TargetRange> = runs.collect();
    let mut actor = Actor::new(PageoutLimits::default(), false);
    let pair = Pair::measure(ROUNDS, |way| {
        target.touch(all);
        let processes = target.processes();
        let process = &processes[&TargetId(0)];
        time(|| match (way, action) {
            (Method::Ours, _) => {
                let request = Request {
                    action,
                    runs: &runs,
                    filters: &[],
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
                    process_madvise(process.pidfd.as_fd(), call, Advice::Cold).unwrap();
                }
            }
        })
    });
    print(&pair, &format!("{action}, {regions} ranges of {}", Bytes(part)));
}

fn cached(path: &Path, action: Action) {
    let go_on = AtomicBool::new(false);
    let all: Vec<u64> = (0..PAGES).collect();
    let ours = PageCache {
        max_bytes: None,
        dry_run: false,
        cancel: &go_on,
    };
    let pair = Pair::measure(ROUNDS, |way| {
        time(|| match (way, action) {
            (Method::Ours, _) => {
                ours.apply(action, path).unwrap();
            }
            (Method::Raw, Action::LruPrio) => {
                CachedFile::open(path).unwrap().use_often(&all, 2).unwrap();
            }
            (Method::Raw, _) => {
                let file = CachedFile::open(path).unwrap();
                let window = file.window(0, PAGES).unwrap();
                let resident = window.resident().unwrap();
                assert_eq!(window.map(&resident), PAGES);
                window.give_up().unwrap();
            }
        })
    });
    print(&pair, &format!("{action}, page cache of {MEMORY}"));
}
