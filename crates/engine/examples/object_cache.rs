//! The engine inside a program that has accesses of its own to count: a cache of objects.
//!
//! The cache sets a flag when an object is used. That flag is the accessed bit, and a slot of 4 KiB is the
//! page: `Operations` is all that the engine needs to know of a machine. A scheme evicts objects that were
//! not used for five seconds, at most 1 MiB a second. Time is a number here, so every run prints the same.
//!
//! `cargo run -p thermo-engine --example object_cache`
#![allow(clippy::disallowed_macros, reason = "only the engine itself prints nothing")]

use std::error::Error;

use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::ops::{Applied, CheckResult, Outcome, Probe, Request, TargetRange};
use thermo_engine::scan::ScanChunk;
use thermo_engine::scheme::{AccessPattern, Age, Bounds, Quota, Rate, SystemMetric};
use thermo_engine::{AccessTables, Scheme, TargetId, TargetLayout};
use thermo_engine::{Action, Attrs, Context, Event, Next, Operations, OpsError};
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE, Permille};

const CACHE: TargetId = TargetId(0);

/// Slots for objects. An empty slot holds nothing.
pub struct Cache {
    slots: Vec<Option<Object>>,
}

#[derive(Clone, Copy)]
struct Object {
    used: bool,
}

impl Cache {
    fn whole(&self) -> AddrRange {
        AddrRange::new(0, self.slots.len() as u64 * PAGE_SIZE)
    }

    fn use_objects(&mut self, slots: std::ops::Range<usize>) {
        for slot in &mut self.slots[slots] {
            *slot = Some(Object { used: true });
        }
    }

    /// Memory of the objects that the cache holds.
    pub fn held(&self) -> Bytes {
        Bytes(self.slots.iter().flatten().count() as u64 * PAGE_SIZE)
    }

    /// The slots of a range, with their addresses.
    fn slots_in(&mut self, range: AddrRange) -> impl Iterator<Item = (Addr, &mut Option<Object>)> {
        let (first, last) = (range.start.0 / PAGE_SIZE, range.end.0 / PAGE_SIZE);
        let slots = self.slots[first as usize..last as usize].iter_mut();
        (first..).map(|nth| Addr(nth * PAGE_SIZE)).zip(slots)
    }
}

impl Operations for Cache {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let mut layout = TargetLayout::new(CACHE, None, vec![self.whole()]);
        layout.resident = Some(self.held());
        Ok(vec![layout])
    }

    fn can_scan(&self) -> bool {
        true
    }

    fn scan(&mut self, run: &TargetRange, chunk: &mut ScanChunk) -> Addr {
        for (addr, slot) in self.slots_in(run.range) {
            if let Some(object) = slot {
                chunk.set(addr, std::mem::take(&mut object.used));
            }
        }
        run.range.end
    }

    // Sampling checks one page of each region. With `can_scan`, a budget always chooses scans.
    fn prepare_access_checks(&mut self, _probes: &[Probe]) {}

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        for probe in probes {
            probe.result = CheckResult::Unknown;
        }
    }

    fn any_target_left(&mut self) -> bool {
        true
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        if request.action != Action::Pageout {
            return Err(OpsError::Unsupported {
                what: format!("{:?}", request.action),
                why: "the cache only evicts".to_owned(),
            });
        }
        let mut outcome = Outcome::default();
        for run in request.ranges {
            let before = self.held();
            // An object used since the scan stays.
            for (_, slot) in self.slots_in(run.range) {
                slot.take_if(|object| !object.used);
            }
            let evicted = before - self.held();
            outcome.results.push(Applied {
                passed_filters: run.range.len(),
                applied: evicted,
                changed: Some(evicted),
                ..Applied::default()
            });
        }
        Ok(outcome)
    }

    fn metric(&mut self, _metric: &SystemMetric) -> Result<u64, OpsError> {
        Err(OpsError::Unsupported {
            what: "a goal".to_owned(),
            why: "the cache has no metrics".to_owned(),
        })
    }
}

/// Evicts objects not used for `min_age`, at most `quota` a second.
fn evict(min_age: Nanos, quota: Bytes) -> Scheme {
    let never = Rate::Permille(Permille(0));
    Scheme {
        pattern: AccessPattern {
            nr_accesses: Bounds {
                min: never,
                max: never,
            },
            age: Bounds {
                min: Age::Time(min_age),
                max: Age::Time(Nanos::MAX),
            },
            ..AccessPattern::default()
        },
        quota: Quota {
            sz: quota,
            reset_interval: Nanos::secs(1),
            ..Quota::default()
        },
        ..Scheme::new(Action::Pageout)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let cache = run(Nanos::secs(20), |end, tables| {
        println!("{end}: {} held, by idle age {}", tables.resident(), ages(tables));
    })?;
    println!("at the end {} held", cache.held());
    Ok(())
}

/// Runs a cache of 16 MiB of objects, of which the first 4 MiB are used all the time. Calls `report` with
/// each snapshot.
pub fn run(time: Nanos, mut report: impl FnMut(Nanos, &AccessTables)) -> Result<Cache, Box<dyn Error>> {
    let mut cache = Cache {
        slots: vec![None; 4096],
    };
    cache.use_objects(0..4096);
    let mut context = Context::new(Attrs::default(), 1)?.with_budget(CpuShare(10_000), MethodPolicy::Auto);
    context.set_schemes(vec![evict(Nanos::secs(5), Bytes::mib(1))])?;
    let mut sink = |event: &Event<'_>| {
        if let Event::Aggregated { end, targets, .. } = event {
            targets
                .iter()
                .filter_map(|target| target.tables)
                .for_each(|tables| report(*end, tables));
        }
    };
    let mut now = Nanos::ZERO;
    while now < time {
        cache.use_objects(0..1024);
        match context.step(now, &mut cache, &mut sink)? {
            Next::At(next) => now = next,
            Next::Finished => break,
        }
    }
    Ok(cache)
}

/// The ages that are in use: from when on, and how much.
fn ages(tables: &AccessTables) -> String {
    let edges = thermo_engine::access_tables::AGE_EDGES_S
        .iter()
        .zip(tables.ages());
    let used = edges.filter(|(_, bytes)| *bytes != Bytes::ZERO);
    let texts: Vec<String> = used.map(|(edge, bytes)| format!("{edge} s: {bytes}")).collect();
    texts.join(", ")
}
