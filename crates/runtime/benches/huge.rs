//! Huge pages collapsed and split per second of CPU time, compared with bare system calls on the same memory.
//!
//! `cargo bench -p thermo-runtime --bench huge`
//!
//! "Ours" is the actor with a page inspector: check for huge and resident pages, calls, check of the result.
//! "Raw" is one `process_madvise(MADV_COLLAPSE)` of all memory, and `MADV_COLD` on the first page of every
//! huge page. Both spend most of their time in the kernel: a copy of 2 MiB, or 512 new entries.
#![allow(clippy::unwrap_used, reason = "a failed benchmark panics")]

#[path = "../tests/common/mod.rs"]
mod common;
mod measure;

use std::io::ErrorKind;

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
    common::run_if_child();
    let mut tracker = match PteTracker::new() {
        Ok(tracker) => tracker,
        Err(why) => return println!("SKIP: {why}"),
    };
    let Some(target) = Target::start_huge(MEMORY.0) else {
        return;
    };
    print_head("huge pages a CPU second, ratio");
    for action in [Action::Hugepage, Action::Collapse, Action::Nohugepage] {
        let pair = Pair::measure(ROUNDS, |method| {
            // Restores the state that this action changes.
            raw(&target, action != Action::Nohugepage);
            time(|| match method {
                Method::Ours => ours(&target, &mut tracker, action),
                Method::Raw => raw(&target, action == Action::Nohugepage),
            })
        });
        // Converts nanoseconds for all memory to huge pages per second.
        pair.print_rates(action.name(), (MEMORY.0 / HUGE) as f64 * 1e9, "/s");
    }
}

fn ours(target: &Target, tracker: &mut PteTracker, action: Action) {
    // A new actor, because an actor skips units that it failed to collapse before.
    let mut actor = Actor::new(PageoutLimits::default(), false).with_huge(HugeOptions::default());
    let run = TargetRange {
        target: TargetId(0),
        range: target.range,
    };
    let request = Request {
        action,
        ranges: &[run],
        filters: &[],
        destinations: &[],
    };
    let processes: Processes = target.processes();
    actor.apply(&processes, &request, Some(tracker)).unwrap();
}

/// Splits all huge pages of the target, or collapses all of its memory.
fn raw(target: &Target, split: bool) {
    let processes = target.processes();
    let pidfd = &processes[&TargetId(0)].pidfd;
    if !split {
        // A page that is in use for a moment ends the call before the rest is collapsed, so the call is
        // repeated.
        while let Err(why) = process_madvise(pidfd, &[target.range], Advice::Collapse) {
            let in_use = [ErrorKind::WouldBlock, ErrorKind::ResourceBusy].contains(&why.kind());
            assert!(in_use, "{why}");
        }
        return;
    }
    let starts = (target.range.start.0..target.range.end.0).step_by(HUGE as usize);
    let first: Vec<AddrRange> = starts
        .map(|start| AddrRange::new(start, start + PAGE_SIZE))
        .collect();
    for call in first.chunks(MAX_RANGES) {
        process_madvise(pidfd, call, Advice::Cold).unwrap();
    }
}
