//! A simulated machine with the same operations as the real one: processes with page tables, accessed bits
//! and swap. For tests and what-if experiments, not as evidence.
//!
//! Nothing runs by itself. A test touches pages between the steps of a context ([`run`]), so runs with the
//! same seed are identical.

mod machine;
mod page;
mod synthetic_process;

pub use machine::Machine;
pub use page::{Page, PageLocation};
pub use synthetic_process::{MonitoringCost, SyntheticProcess};

use thermo_engine::{Context, Next, Operations, OpsError, Sink};
use thermo_units::Nanos;

/// A simulated machine with simulated costs of monitoring.
pub trait SimulatedMachine: Operations {
    /// CPU time spent on monitoring so far.
    fn spent_monitoring(&self) -> Nanos;
}

/// Steps `context` on `machine` from time `from` to `until`. Calls `touch` with the current time before each
/// step. Returns the time after the last step; it ends early when no target is left.
///
/// # Errors
/// Those of [`Context::step`].
pub fn run<M: SimulatedMachine>(
    context: &mut Context,
    machine: &mut M,
    sink: &mut dyn Sink,
    from: Nanos,
    until: Nanos,
    mut touch: impl FnMut(&mut M, Nanos),
) -> Result<Nanos, OpsError> {
    let (mut now, mut spent_before) = (from, machine.spent_monitoring());
    while now < until {
        touch(machine, now);
        let next = context.step(now, machine, sink)?;
        // Monitoring takes simulated time too.
        let spent = machine.spent_monitoring();
        now += spent.saturating_sub(spent_before);
        spent_before = spent;
        context.charge(now, spent);
        match context.delay_for_budget(next) {
            Next::At(next) => now = now.max(next),
            Next::Finished => break,
        }
    }
    Ok(now)
}
