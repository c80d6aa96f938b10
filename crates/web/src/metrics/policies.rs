//! Metrics of policies.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use thermo_agent::api::{Mode, Policies, Policy};

use super::family::{Family, Kind};

const fn state(name: &'static str, help: &'static str) -> Family {
    Family {
        name,
        unit: None,
        kind: Kind::Gauge,
        labels: &["policy"],
        help,
    }
}

const MODE: Family = Family {
    labels: &["policy", "mode"],
    ..state(
        "thermo_policy_mode",
        "1 for the mode of the policy, 0 for the other modes",
    )
};
const PAUSED: Family = state("thermo_policy_paused", "1 if a user paused the policy");
const SUSPENDED: Family = state("thermo_policy_suspended", "1 if the guard suspended the policy");
const SUSPENDED_TARGETS: Family = state(
    "thermo_policy_suspended_targets",
    "Targets of the policy that the guard suspended",
);
const FAILED: Family = state(
    "thermo_policy_failed",
    "1 if the policy cannot run on this machine",
);
const TARGETS: Family = state("thermo_policy_targets", "Targets of the policy");
const PROCESSES: Family = state("thermo_policy_processes", "Processes of the policy");

/// The families of this file.
pub(super) const FAMILIES: &[Family] = &[
    MODE,
    PAUSED,
    SUSPENDED,
    SUSPENDED_TARGETS,
    FAILED,
    TARGETS,
    PROCESSES,
];

/// Writes the families.
pub(super) fn encode(policies: &Policies, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let policies = &policies.policies;
    let modes = policies.iter().flat_map(|policy| {
        [Mode::Observe, Mode::DryRun, Mode::Act]
            .map(|mode| ([policy.name.as_str(), mode.name()], flag(policy.mode == mode)))
    });
    MODE.write(encoder, modes)?;
    let mut each = |family: &Family, value: fn(&Policy) -> f64| {
        let samples = policies
            .iter()
            .map(|policy| ([policy.name.as_str()], value(policy)));
        family.write(encoder, samples)
    };
    each(&PAUSED, |policy| flag(policy.paused))?;
    each(&SUSPENDED, |policy| flag(policy.suspended.is_some()))?;
    each(&SUSPENDED_TARGETS, |policy| policy.suspended_targets as f64)?;
    each(&FAILED, |policy| flag(policy.error.is_some()))?;
    each(&TARGETS, |policy| policy.targets as f64)?;
    each(&PROCESSES, |policy| policy.processes as f64)
}

fn flag(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}
