//! Flags of verbs that apply schemes and record nothing.

use thermo_engine::{Attrs, Scheme};
use thermo_units::Nanos;

use super::{Limits, Monitoring, Targets};
use crate::session::{Migration, Plan};

/// Monitoring, limits of the schemes, duration and output format.
#[derive(Debug, clap::Args)]
pub struct RunOpts {
    #[command(flatten)]
    pub monitoring: Monitoring,

    #[command(flatten)]
    pub limits: Limits,

    /// Stop after this time; a started command keeps running
    #[arg(long, alias = "for", value_name = "TIME")]
    pub duration: Option<Nanos>,

    /// With --cgroup: end when the control group is removed. Without this flag thermo waits until the group
    /// is created again
    #[arg(long, requires = "cgroup")]
    pub once: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl RunOpts {
    /// The session that monitors `targets` with `attrs` and applies `schemes`. Nothing is recorded.
    pub fn plan(self, mut targets: Targets, attrs: Attrs, schemes: Vec<Scheme>) -> Plan {
        targets.waits_for_cgroup = !self.once;
        Plan {
            attrs,
            schemes,
            limits: self.limits,
            targets,
            monitoring: self.monitoring,
            duration: self.duration,
            output: None,
            migration: Migration::default(),
        }
    }
}
