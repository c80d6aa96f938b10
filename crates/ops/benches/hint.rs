//! Hints against bare `process_madvise` on the same ranges of another process, in turns: pageout (into zram swap of our
//! own) and cold, in few large ranges and in many small ones, next to each other and apart.
//!
//! `cargo bench -p thermocline-ops --bench hint`
//!
//! Raw is one call for each 1024 ranges, without a look at what came of it.
#![allow(clippy::unwrap_used, reason = "what cannot be measured has nothing to report")]

#[path = "../tests/common/mod.rs"]
mod common;
mod measure;

use std::hint::black_box;
use std::os::fd::AsFd as _;
use std::path::Path;

use common::Target;
use measure::{Pair, Way, print_head, time};
use thermo_core::{Action, AddrRange, Bytes, Permille, TargetId};
use thermo_ops::hint::{Hint, Hinter, Limits};
use thermo_ops::{Actor, PageoutLimits, Processes};
use thermo_sys::process_madvise::{Advice, MAX_RANGES, process_madvise};
use thermo_sys::zram::ZramSwap;

const MEMORY: Bytes = Bytes::mib(256);
const ROUNDS: usize = 9;

/// Ranges of so much, one in every so much.
const SHAPES: [(Bytes, Bytes); 4] = [
    (Bytes::mib(64), Bytes::mib(64)),
    (Bytes::mib(1), Bytes::mib(1)),
    (Bytes::kib(64), Bytes::kib(64)),
    (Bytes::kib(64), Bytes::kib(128)),
];

fn main() {
    common::live_as_child();
    let swap = ZramSwap::create(Path::new("/"), Bytes::gib(1), None);
    let mut target = Target::start(MEMORY.0);
    print_head("MiB/s, ratio of throughputs");
    for (len, every) in SHAPES {
        throughput(&mut target, Action::Cold, Advice::Cold, len, every);
    }
    match &swap {
        Ok(_) => {
            for (len, every) in SHAPES {
                throughput(&mut target, Action::Pageout, Advice::PageOut, len, every);
            }
        }
        Err(why) => println!("SKIP: no swap for pageout: {why}"),
    }
    // It ends before its swap is taken away.
    drop(target);
}

fn throughput(target: &mut Target, action: Action, advice: Advice, len: Bytes, every: Bytes) {
    let all = target.range;
    let starts = (all.start.0..all.end.0).step_by(every.0 as usize);
    let ranges: Vec<AddrRange> = starts.map(|start| AddrRange::new(start, start + len.0)).collect();
    let hint = |range: &AddrRange| Hint {
        target: TargetId(0),
        range: *range,
        action,
    };
    let hints: Vec<Hint> = ranges.iter().map(hint).collect();
    let pair = Pair::measure(ROUNDS, |way| {
        target.touch(all);
        let processes = target.processes();
        match way {
            Way::Ours => time(|| by_hints(&processes, &hints)),
            Way::Raw => time(|| bare(&processes, &ranges, advice)),
        }
    });
    let mib = ranges.iter().map(AddrRange::len).sum::<Bytes>().0 >> 20;
    let apart = if len == every { "" } else { " apart" };
    let name = format!("{action}, {} ranges of {len}{apart}", ranges.len());
    // Nanoseconds for all of it become MiB a second.
    pair.print_rates(&name, mib as f64 * 1e9, "");
}

fn bare(processes: &Processes, ranges: &[AddrRange], advice: Advice) {
    // At most 2 GiB a call: all of it fits.
    for call in ranges.chunks(MAX_RANGES) {
        process_madvise(processes[&TargetId(0)].pidfd.as_fd(), call, advice).unwrap();
    }
}

fn by_hints(processes: &Processes, hints: &[Hint]) {
    let limits = PageoutLimits {
        swap_floor: Permille(0),
        refaults: Permille(1000),
        ..PageoutLimits::default()
    };
    black_box(Hinter::new(Actor::new(limits, false), Limits::default()).give(processes, hints));
}
