//! How fast a scheme acts, beside the bare system call on the same ranges: pageout (into zram swap of our own) and
//! cold.
//!
//! `cargo bench -p thermo-runtime --bench schemes [-- cold|pageout]`
//!
//! Ours is the step of a context in which its scheme is applied: aggregation, choice, action, and the look at what
//! came of it. Looking for accesses, which the same step ends and begins anew, is left out: it is not done for the scheme,
//! and has a bench of its own. Raw is `process_madvise` of the ranges that scheme tried, in one call for each 1024 of them.
#![allow(clippy::unwrap_used, reason = "what cannot be measured has nothing to report")]

#[path = "../tests/common/mod.rs"]
mod common;
mod measure;

use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::path::Path;

use common::Target;
use measure::{Method, Pair, is_asked_for, print_head, time};
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
    common::live_as_child();
    if let Err(why) = PteTracker::new() {
        return println!("SKIP: {why}");
    }
    let mut target = Target::start(MEMORY.0);
    print_head("MiB/s, ratio of throughputs");
    if is_asked_for("cold") {
        for regions in [16, 1000] {
            throughput(&mut target, Action::Cold, Advice::Cold, regions);
        }
    }
    if is_asked_for("pageout") {
        let swap = match ZramSwap::create(Path::new("/"), Bytes::gib(1)) {
            Ok(swap) => swap,
            Err(why) => return println!("SKIP: no swap for pageout: {why}"),
        };
        for regions in [16, 1000] {
            throughput(&mut target, Action::Pageout, Advice::PageOut, regions);
        }
        // It ends before its swap is taken away.
        drop(target);
        drop(swap);
    }
}

fn throughput(target: &mut Target, action: Action, advice: Advice, regions: usize) {
    let all = target.range;
    let mut tried = Vec::new();
    // The ranges of the first round are those of the others, too: the same seed cuts the same way.
    target.touch(all);
    let mut gone = (act(target, action, regions, &mut tried).1, Bytes::ZERO);
    let pair = Pair::measure(ROUNDS, |way| {
        target.touch(all);
        match way {
            Method::Ours => {
                let (took, stats) = act(target, action, regions, &mut tried);
                gone.0 = stats;
                took
            }
            Method::Raw => {
                let processes = target.processes();
                let process = &processes[&TargetId(0)];
                let took = time(|| {
                    for call in tried.chunks(MAX_RANGES) {
                        process_madvise(process.pidfd.as_fd(), call, advice).unwrap();
                    }
                });
                gone.1 = swapped(target);
                took
            }
        }
    });
    let name = format!("{action}, {} ranges of {}", tried.len(), tried[0].len());
    pair.print(&name, 1e6, "ms", true);
    if action == Action::Pageout {
        println!(
            "{:<44} {:>12} {:>12}",
            "  of which is swapped out after the last",
            gone.0.to_string(),
            gone.1.to_string()
        );
    }
}

/// Does `action` to all of the target's memory by a scheme. Returns how long the step took that did it, and what
/// is swapped out then; `tried` gets the ranges it was done to.
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
    let members = TrackedProcesses::new(Path::new("/"), TargetSpec::of_pids(&[target.pid()])).unwrap();
    let limits = PageoutLimits {
        swap_floor: Permille(0),
        refaults: Permille(1000),
        ..PageoutLimits::default()
    };
    let mut tracker = Box::new(PteTracker::new().unwrap());
    // One that has looked before has its memory.
    tracker
        .tables()
        .tables(target.pid(), target.range, Folios::Unasked, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
    let mut ops = NotLooking {
        ops: Vaddr::new(Path::new("/"), members, tracker, Actor::new(limits, false)),
        looked: 0.0,
    };
    let mut applied = Applied::default();
    let mut now = Nanos::ZERO;
    loop {
        let took = time(|| match context.step(now, &mut ops, &mut applied).unwrap() {
            Next::At(next) => now = next,
            Next::Finished => panic!("the target is gone"),
        });
        if !applied.0.is_empty() {
            *tried = applied.0;
            return (took - ops.looked, swapped(target));
        }
        ops.looked = 0.0;
    }
}

/// Operations, and how long they looked for accesses in a step.
struct NotLooking {
    ops: Vaddr,
    looked: f64,
}

impl Operations for NotLooking {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        self.ops.update()
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.looked += time(|| self.ops.prepare_access_checks(probes));
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.looked += time(|| self.ops.check_accesses(probes));
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

/// The ranges a scheme tried.
#[derive(Default)]
struct Applied(Vec<AddrRange>);

impl Sink for Applied {
    fn on(&mut self, event: &Event<'_>) {
        if let Event::SchemeApplied { tried, .. } = event {
            self.0.extend(tried.iter().map(|region| region.run.range));
        }
    }
}

fn swapped(target: &Target) -> Bytes {
    let mut pages = Vec::new();
    let pagemap = Pagemap::open(Path::new("/"), target.pid()).unwrap();
    pagemap.read(target.range, &mut pages).unwrap();
    Bytes(pages.iter().filter(|page| page.is_swapped()).count() as u64 * 4096)
}
