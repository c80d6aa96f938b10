//! Groups of flags that several verbs share, declared once.

mod acting;
mod course;
mod cpu_share;
mod monitoring;
mod output;
mod targets;
mod tuned;

pub use acting::{Acting, Limits};
pub use course::Course;
pub use monitoring::Monitoring;
pub use output::Output;
pub use targets::{Targets, TargetsOrMachine};
