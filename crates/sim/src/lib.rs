//! A simulated machine behind the same operations as the real one: processes with page tables, accessed bits
//! and swap. For tests and what-if, never for proof.
//!
//! Nothing runs by itself: a test touches pages between the steps of a context ([`run`]), so that every run
//! with the same seed is the same.

mod machine;
mod page;
mod synthetic_process;

pub use machine::Machine;
pub use page::{Page, Place};
pub use synthetic_process::{Expanse, LookingCost};

use thermo_engine::{Context, Next, Operations, OpsError, Sink};
use thermo_units::Nanos;

/// A machine on which looking takes as long as it says.
pub trait Simulated: Operations {
    /// CPU time all looks have cost so far.
    fn spent_monitoring(&self) -> Nanos;
}

/// Steps `context` on `machine` from time `from` to `until`, calling `touch` before each step with the time
/// since the last. Returns when the last step was, or when the targets were gone.
///
/// # Errors
/// Those of [`Context::step`].
pub fn run<M: Simulated>(
    context: &mut Context,
    machine: &mut M,
    sink: &mut dyn Sink,
    from: Nanos,
    until: Nanos,
    mut touch: impl FnMut(&mut M, Nanos),
) -> Result<Nanos, OpsError> {
    let (mut now, mut told) = (from, machine.spent_monitoring());
    while now < until {
        touch(machine, now);
        let next = context.step(now, machine, sink)?;
        // Time passes while the machine is looked at, too.
        let spent = machine.spent_monitoring();
        now += spent.saturating_sub(told);
        told = spent;
        context.spent(now, spent);
        match context.rest(next) {
            Next::At(next) => now = now.max(next),
            Next::Finished => break,
        }
    }
    Ok(now)
}
