//! Hints compared with bare `process_madvise` on the same ranges of another process: `pageout` (to a zram
//! swap device of the benchmark) and `cold`, with few large and many small ranges, adjacent and apart.
//!
//! `cargo bench -p thermo-runtime --bench hint [-- cold|pageout]`
//!
//! "Raw" is one call for each 1024 ranges, without a check of the result.
#![allow(clippy::unwrap_used, reason = "a failed benchmark panics")]

#[path = "../tests/common/mod.rs"]
mod common;
mod measure;

use std::hint::black_box;
use std::path::Path;

use common::Target;
use measure::{Method, Pair, is_selected, print_head, time};
use thermo_actions::hint::{Hint, Hinter, Limits};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::{Action, TargetId};
use thermo_kernel::process_madvise::{Advice, MAX_RANGES, process_madvise};
use thermo_kernel::zram::ZramSwap;
use thermo_targets::Processes;
use thermo_units::{AddrRange, Bytes, Permille};

const MEMORY: Bytes = Bytes::mib(256);
const ROUNDS: usize = 9;

/// Size of the ranges, and distance between their starts.
const SHAPES: [(Bytes, Bytes); 4] = [
    (Bytes::mib(64), Bytes::mib(64)),
    (Bytes::mib(1), Bytes::mib(1)),
    (Bytes::kib(64), Bytes::kib(64)),
    (Bytes::kib(64), Bytes::kib(128)),
];

fn main() {
    common::run_if_child();
    let mut target = Target::start(MEMORY.0);
    print_head("MiB/s, ratio of throughputs");
    for shape in SHAPES {
        throughput(&mut target, Action::Cold, Advice::Cold, shape);
    }
    if SHAPES
        .iter()
        .any(|shape| is_selected(&name(Action::Pageout, *shape)))
    {
        let swap = match ZramSwap::create(Path::new("/"), Bytes::gib(1)) {
            Ok(swap) => swap,
            Err(why) => return println!("SKIP: no swap for pageout: {why}"),
        };
        for shape in SHAPES {
            throughput(&mut target, Action::Pageout, Advice::PageOut, shape);
        }
        // The target ends before its swap device is removed.
        drop(target);
        drop(swap);
    }
}

fn name(action: Action, (len, every): (Bytes, Bytes)) -> String {
    let apart = if len == every { "" } else { " apart" };
    format!("{action}, {} ranges of {len}{apart}", MEMORY.0 / every.0)
}

fn throughput(target: &mut Target, action: Action, advice: Advice, (len, every): (Bytes, Bytes)) {
    let name = name(action, (len, every));
    if !is_selected(&name) {
        return;
    }
    let all = target.range;
    let starts = (all.start.0..all.end.0).step_by(every.0 as usize);
    let ranges: Vec<AddrRange> = starts.map(|start| AddrRange::new(start, start + len.0)).collect();
    let hint = |range: &AddrRange| Hint {
        target: TargetId(0),
        range: *range,
        action,
    };
    let hints: Vec<Hint> = ranges.iter().map(hint).collect();
    let limits = PageoutLimits {
        swap_floor: Permille(0),
        refaults: Permille(1000),
        ..PageoutLimits::default()
    };
    let mut hinter = Hinter::new(Actor::new(limits, false), Limits::default());
    let pair = Pair::measure(ROUNDS, |method| {
        target.touch(all);
        let processes = target.processes();
        match method {
            Method::Ours => time(|| drop(black_box(hinter.give(&processes, &hints)))),
            Method::Raw => time(|| raw(&processes, &ranges, advice)),
        }
    });
    // Converts nanoseconds for all ranges to MiB per second.
    let mib = (len.0 >> 10) as f64 * hints.len() as f64 / 1024.0;
    pair.print_rates(&name, mib * 1e9, "");
}

fn raw(processes: &Processes, ranges: &[AddrRange], advice: Advice) {
    // One call can advise at most 2 GiB, which is enough.
    for call in ranges.chunks(MAX_RANGES) {
        process_madvise(&processes[&TargetId(0)].pidfd, call, advice).unwrap();
    }
}
