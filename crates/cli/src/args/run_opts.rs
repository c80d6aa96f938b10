//! How a verb that acts on memory goes about it.

use thermo_engine::{Attrs, Scheme};
use thermo_units::Nanos;

use super::{Limits, Monitoring, Targets};
use crate::session::Plan;

/// How to look, how far to go, for how long, and how to tell of it.
#[derive(Debug, clap::Args)]
pub struct Course {
    #[command(flatten)]
    pub monitoring: Monitoring,

    #[command(flatten)]
    pub limits: Limits,

    /// Stop after this time; a command that was started goes on
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Course {
    /// The session that applies `schemes` to `targets`, which are looked at by `attrs`. Nothing is recorded.
    pub fn plan(self, targets: Targets, attrs: Attrs, schemes: Vec<Scheme>) -> Plan {
        Plan {
            attrs,
            schemes,
            limits: self.limits,
            targets,
            monitoring: self.monitoring,
            duration: self.duration,
            output: None,
        }
    }
}
