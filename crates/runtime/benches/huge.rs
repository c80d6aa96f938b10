//! How many huge pages are made and split in a second of CPU time, beside the bare system calls on the same memory.
//!
//! `cargo bench -p thermo-runtime --bench huge`
//!
//! Ours is the actor with eyes for page tables: the look at what is huge already and at what is there, the calls, the
//! look at what came of them. Raw is one `process_madvise(MADV_COLLAPSE)` of everything, and `MADV_COLD` on the first
//! page of every huge page. Both do most of their work in the kernel: a copy of 2 MiB, or 512 new entries.
#![allow(clippy::unwrap_used, reason = "what cannot be measured has nothing to report")]

#[path = "../tests/common/mod.rs"]
mod common;
mod measure;

use std::io::ErrorKind;
use std::os::fd::AsFd as _;

use common::Target;
use measure::{Method, Pair, print_head, time};
use thermo_actions::{Actor, HugeOptions, PageoutLimits};
use thermo_backends::PteTracker;
use thermo_engine::ops::{Request, TargetRange};
use thermo_engine::{Action, TargetId};
use thermo_kernel::process_madvise::{Advice, MAX_RANGES, process_madvise};
use thermo_targets::Processes;
use thermo_units::{AddrRange, Bytes, PAGE_SIZE};

const MEMORY: Bytes = Bytes::mib(256);
const HUGE: u64 = 2 << 20;
const ROUNDS: usize = 7;

fn main() {
    common::live_as_child();
    let mut tracker = match PteTracker::new() {
        Ok(tracker) => tracker,
        Err(why) => return println!("SKIP: {why}"),
    };
    let Some(target) = Target::start_huge(MEMORY.0) else {
        return;
    };
    print_head("huge pages a CPU second, ratio");
    for action in [Action::Hugepage, Action::Collapse, Action::Nohugepage] {
        let pair = Pair::measure(ROUNDS, |way| {
            // As the other action leaves it.
            raw(&target, action != Action::Nohugepage);
            time(|| match way {
                Method::Ours => ours(&target, &mut tracker, action),
                Method::Raw => raw(&target, action == Action::Nohugepage),
            })
        });
        // Nanoseconds for all become huge pages a second.
        pair.print_rates(action.name(), (MEMORY.0 / HUGE) as f64 * 1e9, "/s");
    }
}

fn ours(target: &Target, tracker: &mut PteTracker, action: Action) {
    // A new one, that remembers no place as one that could not be made huge.
    let mut actor = Actor::new(PageoutLimits::default(), false).with_huge(HugeOptions::default());
    let run = TargetRange {
        target: TargetId(0),
        range: target.range,
    };
    let request = Request {
        action,
        runs: &[run],
        filters: &[],
    };
    let processes: Processes = target.processes();
    actor.apply(&processes, &request, Some(tracker)).unwrap();
}

/// Splits all of the target's huge pages, or makes all of it huge.
fn raw(target: &Target, split: bool) {
    let processes = target.processes();
    let pidfd = processes[&TargetId(0)].pidfd.as_fd();
    if !split {
        // A page that somebody holds for a moment stops the call; those behind it are still to be done.
        while let Err(why) = process_madvise(pidfd, &[target.range], Advice::Collapse) {
            let in_use = [ErrorKind::WouldBlock, ErrorKind::ResourceBusy].contains(&why.kind());
            assert!(in_use, "{why}");
        }
        return;
    }
    let begins = (target.range.start.0..target.range.end.0).step_by(HUGE as usize);
    let first: Vec<AddrRange> = begins.map(|at| AddrRange::new(at, at + PAGE_SIZE)).collect();
    for call in first.chunks(MAX_RANGES) {
        process_madvise(pidfd, call, Advice::Cold).unwrap();
    }
}
