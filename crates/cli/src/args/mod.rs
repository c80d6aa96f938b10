//! Groups of flags that several verbs share, declared once.

mod acting;
mod cpu_share;
mod monitoring;
mod output;
mod targets;
mod tuned;

pub use acting::{Acting, Limits};
pub use monitoring::Monitoring;
pub use output::Output;
pub use targets::{Targets, TargetsOrMachine};
