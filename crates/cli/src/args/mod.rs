//! Groups of flags that several verbs share, declared once.

mod monitoring;
mod targets;

pub use monitoring::Monitoring;
pub use targets::Targets;
