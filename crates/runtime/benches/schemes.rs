//! Throughput of a scheme, compared with the bare system call on the same ranges: `pageout` (to a zram swap
//! device of the benchmark) and `cold`.
//!
//! `cargo bench -p thermo-runtime --bench schemes [-- cold|pageout]`
//!
//! "Ours" is the step of a context that applies the scheme: aggregation, selection, action, and the check of
//! the result. Access checks, which the same step also does, are not counted: they are not done for the
//! scheme, and `probe_cost` measures them. "Raw" is `process_madvise` of the ranges that the scheme tried,
//! one call for each 1024 ranges.
#![allow(clippy::unwrap_used, reason = "a failed benchmark panics")]

#[path = "../tests/common/mod.rs"]
mod common;
mod measure;

use std::ops::ControlFlow;
use std::path::Path;

use common::Target;
use measure::{Method, Pair, is_selected, print_head, time};
use thermo_actions::{Actor, PageoutLimits};
use thermo_backends::PteTracker;
use thermo_engine::ops::{Outcome, Probe, Request};
use thermo_engine::scheme::{CoreFilter, CoreFilterKind, Filters, Scheme, SystemMetric};
use thermo_engine::{
    Action, Attrs, Context, Event, Next, Operations, OpsError, Sink, TargetId, TargetLayout,
};
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::process_madvise::{Advice, MAX_RANGES, process_madvise};
use thermo_kernel::zram::ZramSwap;
use thermo_pagetable::Folios;
use thermo_runtime::Vaddr;
use thermo_targets::{TargetSpec, TrackedProcesses};
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

const MEMORY: Bytes = Bytes::mib(256);
const ROUNDS: usize = 7;

fn main() {
    common::run_if_child();
    if let Err(why) = PteTracker::new() {
        return println!("SKIP: {why}");
    }
    let mut target = Target::start(MEMORY.0);
    print_head("MiB/s, ratio of throughputs");
    if is_selected("cold") {
        for regions in [16, 1000] {
            throughput(&mut target, Action::Cold, Advice::Cold, regions);
        }
    }
    if is_selected("pageout") {
        let swap = match ZramSwap::create(Path::new("/"), Bytes::gib(1)) {
            Ok(swap) => swap,
            Err(why) => return println!("SKIP: no swap for pageout: {why}"),
        };
        for regions in [16, 1000] {
            throughput(&mut target, Action::Pageout, Advice::PageOut, regions);
        }
        // The target ends before its swap device is removed.
        drop(target);
        drop(swap);
    }
}

fn throughput(target: &mut Target, action: Action, advice: Advice, regions: usize) {
    let all = target.range;
    let mut tried = Vec::new();
    // All rounds have the ranges of the first round, because the same seed splits regions in the same way.
    target.touch(all);
    let mut swapped_out = (act(target, action, regions, &mut tried).1, Bytes::ZERO);
    let pair = Pair::measure(ROUNDS, |method| {
        target.touch(all);
        match method {
            Method::Ours => {
                let (time, bytes) = act(target, action, regions, &mut tried);
                swapped_out.0 = bytes;
                time
            }
            Method::Raw => {
                let processes = target.processes();
                let process = &processes[&TargetId(0)];
                let elapsed = time(|| {
                    for call in tried.chunks(MAX_RANGES) {
                        process_madvise(&process.pidfd, call, advice).unwrap();
                    }
                });
                swapped_out.1 = swapped(target);
                elapsed
            }
        }
    });
    let name = format!("{action}, {} ranges of {}", tried.len(), tried[0].len());
    pair.print(&name, 1e6, "ms", true);
    if action == Action::Pageout {
        println!(
            "{:<44} {:>12} {:>12}",
            "  swapped out after the last round",
            swapped_out.0.to_string(),
            swapped_out.1.to_string()
        );
    }
}

/// Applies `action` to all memory of the target with a scheme. Returns the time of the step that applied it,
/// and the bytes swapped out afterwards. `tried` receives the ranges of the scheme.
fn act(target: &Target, action: Action, regions: usize, tried: &mut Vec<AddrRange>) -> (f64, Bytes) {
    let interval = Nanos(5_000_000);
    let attrs = Attrs {
        sample: interval,
        aggr: interval,
        update: Nanos::secs(1),
        min_nr_regions: regions.max(3),
        max_nr_regions: regions.max(3),
    };
    let mut context = Context::new(attrs, 1).unwrap();
    let only = CoreFilter {
        kind: CoreFilterKind::Addr(target.range),
        matching: true,
        allow: true,
    };
    let scheme = Scheme {
        filters: Filters {
            core: vec![only],
            ops: Vec::new(),
        },
        ..Scheme::new(action)
    };
    context.set_schemes(vec![scheme]).unwrap();
    let targets = TrackedProcesses::new(Path::new("/"), TargetSpec::for_pids(&[target.pid()])).unwrap();
    let limits = PageoutLimits {
        swap_floor: Permille(0),
        refaults: Permille(1000),
        ..PageoutLimits::default()
    };
    let mut tracker = Box::new(PteTracker::new().unwrap());
    // Reads the page tables once, so that the buffers of the tracker are allocated.
    tracker
        .tables()
        .tables(target.pid(), target.range, Folios::None, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
    let mut ops = WithoutChecks {
        ops: Vaddr::new(Path::new("/"), targets, tracker, Actor::new(limits, false)),
        check_time: 0.0,
    };
    let mut applied = Applied::default();
    let mut now = Nanos::ZERO;
    loop {
        let elapsed = time(|| match context.step(now, &mut ops, &mut applied).unwrap() {
            Next::At(next) => now = next,
            Next::Finished => panic!("the target has ended"),
        });
        if !applied.0.is_empty() {
            *tried = applied.0;
            return (elapsed - ops.check_time, swapped(target));
        }
        ops.check_time = 0.0;
    }
}

/// Operations that measure the time of access checks in a step.
struct WithoutChecks {
    ops: Vaddr,
    check_time: f64,
}

impl Operations for WithoutChecks {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        self.ops.update()
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.check_time += time(|| self.ops.prepare_access_checks(probes));
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.check_time += time(|| self.ops.check_accesses(probes));
    }

    fn any_target_left(&mut self) -> bool {
        self.ops.any_target_left()
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        self.ops.apply(request)
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        self.ops.metric(metric)
    }
}

/// The ranges that the scheme tried.
#[derive(Default)]
struct Applied(Vec<AddrRange>);

impl Sink for Applied {
    fn on(&mut self, event: &Event<'_>) {
        if let Event::SchemeApplied { tried, .. } = event {
            self.0
                .extend(tried.iter().map(|region| region.target_range.range));
        }
    }
}

fn swapped(target: &Target) -> Bytes {
    let mut pages = Vec::new();
    let pagemap = Pagemap::open(Path::new("/"), target.pid()).unwrap();
    pagemap.read(target.range, &mut pages).unwrap();
    Bytes(pages.iter().filter(|page| page.is_swapped()).count() as u64 * 4096)
}
