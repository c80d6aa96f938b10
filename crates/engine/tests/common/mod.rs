//! Shared code of the tests on the simulated machine: page ranges, and runs of a context from time 0.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test file uses only some of these functions")]

use thermo_engine::scheme::{AccessPattern, Age, Bounds, Rate};
use thermo_engine::{Context, Sink};
use thermo_sim::{Machine, run};
use thermo_units::{AddrRange, Nanos, PAGE_SIZE};

/// The pages `start..end`, by page number.
pub const fn pages(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE)
}

/// The pattern of memory without accesses for at least `span`.
pub fn idle_for(span: Nanos) -> AccessPattern {
    AccessPattern {
        nr_accesses: Bounds {
            min: Rate::Samples(0),
            max: Rate::Samples(0),
        },
        age: Bounds {
            min: Age::Time(span),
            max: Age::Time(Nanos::MAX),
        },
        ..AccessPattern::default()
    }
}

/// Runs `context` on `machine` from time 0 to `until`. Calls `touch` before each step. Returns the time of
/// the last step.
pub fn run_until(
    context: &mut Context,
    machine: &mut Machine,
    sink: &mut dyn Sink,
    until: Nanos,
    touch: impl FnMut(&mut Machine, Nanos),
) -> Nanos {
    run(context, machine, sink, Nanos(0), until, touch).unwrap()
}

/// Same as [`run_until`], without accesses.
pub fn idle_until(context: &mut Context, machine: &mut Machine, sink: &mut dyn Sink, until: Nanos) -> Nanos {
    run_until(context, machine, sink, until, |_, _| {})
}
