//! Metrics of targets.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use thermo_agent::api::{AgeBytes, Target, Targets};

use super::family::{Family, Kind};

const TARGET: &[&str] = &["target", "policy"];

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family {
        name,
        unit: Some(unit),
        kind: Kind::Gauge,
        labels: TARGET,
        help,
    }
}

const IDLE: Family = Family {
    labels: &["target", "policy", "kind", "min_age_seconds"],
    ..gauge(
        "thermo_target_idle",
        "bytes",
        "Resident memory by kind, and by the lower edge of its range of idle ages. Ranges do not overlap: their \
         sum, with thermo_target_unknown_bytes, is thermo_target_resident_bytes",
    )
};
const REACCESSED: Family = Family {
    kind: Kind::Counter,
    labels: &["target", "policy", "min_age_seconds"],
    ..gauge(
        "thermo_target_reaccessed",
        "bytes",
        "Memory that was accessed again since the agent started, by the lower edge of the range of idle ages it \
         had then",
    )
};
const PROCESSES: Family = Family {
    unit: None,
    ..gauge("thermo_target_processes", "", "Processes of the target")
};
const RESIDENT: Family = gauge("thermo_target_resident", "bytes", "Resident memory");
const SWAP: Family = gauge("thermo_target_swap", "bytes", "Memory in swap");
const UNKNOWN: Family = gauge(
    "thermo_target_unknown",
    "bytes",
    "Resident memory whose idle age is not known",
);
const WORKING_SET: Family = gauge(
    "thermo_target_working_set",
    "bytes",
    "Memory that was accessed within the last minute",
);
const NET_SAVED: Family = gauge(
    "thermo_target_net_saved",
    "bytes",
    "Memory that is paged out and not back, less what it occupies in compressed swap",
);
const REFAULTS: Family = gauge(
    "thermo_target_refaults",
    "bytes_per_second",
    "Memory that came back in the last minute after the agent had paged it out, for each second of it",
);
const PASS: Family = gauge(
    "thermo_target_pass",
    "seconds",
    "Length of a scan pass: the resolution of idle ages",
);

/// The families of this file.
pub(super) const FAMILIES: &[Family] = &[
    IDLE,
    REACCESSED,
    PROCESSES,
    RESIDENT,
    SWAP,
    UNKNOWN,
    WORKING_SET,
    NET_SAVED,
    REFAULTS,
    PASS,
];

/// Writes the families.
pub(super) fn encode(targets: &Targets, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let targets = &targets.targets;
    write_ages(targets, encoder)?;
    let mut each = |family: &Family, value: &dyn Fn(&Target) -> Option<f64>| {
        let sample = |target| Some((names(target), value(target)?));
        family.write(encoder, targets.iter().filter_map(sample))
    };
    each(&PROCESSES, &|target| Some(target.pids.len() as f64))?;
    each(&RESIDENT, &|target| Some(target.resident_bytes as f64))?;
    each(&SWAP, &|target| Some(target.swap_bytes as f64))?;
    each(&UNKNOWN, &|target| Some(target.unknown_bytes as f64))?;
    each(&WORKING_SET, &|target| Some(target.working_set_bytes as f64))?;
    each(&NET_SAVED, &|target| Some(target.net_saved_bytes as f64))?;
    each(&REFAULTS, &|target| {
        Some(target.refault_bytes_per_min as f64 / 60.0)
    })?;
    each(&PASS, &|target| target.pass_s)
}

fn names(target: &Target) -> [&str; 2] {
    [&target.name, &target.policy]
}

fn write_ages(targets: &[Target], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    // The texts of the edges live as long as the samples.
    let edges = |ages: &[AgeBytes]| ages.iter().map(|age| age.min_s.to_string()).collect::<Vec<_>>();
    let mut texts: Vec<Vec<String>> = Vec::new();
    for target in targets {
        texts.extend(target.kinds.iter().map(|kind| edges(&kind.ages)));
    }
    let kinds = targets
        .iter()
        .flat_map(|target| target.kinds.iter().map(move |kind| (target, kind)));
    let idle = kinds.zip(&texts).flat_map(|((target, kind), texts)| {
        let [name, policy] = names(target);
        let ages = kind.ages.iter().zip(texts);
        ages.map(move |(age, edge)| ([name, policy, &kind.kind, edge], age.bytes as f64))
    });
    IDLE.write(encoder, idle)?;
    let texts: Vec<Vec<String>> = targets.iter().map(|target| edges(&target.reaccess)).collect();
    let reaccess = targets.iter().zip(&texts).flat_map(|(target, texts)| {
        let [name, policy] = names(target);
        let ages = target.reaccess.iter().zip(texts);
        ages.map(move |(age, edge)| ([name, policy, edge.as_str()], age.bytes as f64))
    });
    REACCESSED.write(encoder, reaccess)
}
