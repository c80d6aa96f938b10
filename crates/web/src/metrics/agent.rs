//! Metrics of the agent itself.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use thermo_agent::api::Status;

use super::family::{Family, Kind};

const fn gauge(name: &'static str, unit: Option<&'static str>, help: &'static str) -> Family {
    Family {
        name,
        unit,
        kind: Kind::Gauge,
        labels: &[],
        help,
    }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family {
        kind: Kind::Counter,
        ..gauge(name, Some("seconds"), help)
    }
}

const BUILD: Family = Family {
    labels: &["version"],
    ..gauge("thermo_build_info", None, "1, with the version of the program")
};
const CPU: Family = counter("thermo_agent_cpu", "CPU time of the whole agent since its start");
const WATCHING: Family = counter(
    "thermo_agent_watching_cpu",
    "CPU time of watching since the start",
);
const ACTING: Family = counter("thermo_agent_acting_cpu", "CPU time of acting since the start");
const BUDGET: Family = gauge(
    "thermo_agent_cpu_budget",
    Some("ratio"),
    "CPU budget of watching, as a share of one CPU",
);
const RESIDENT: Family = gauge(
    "thermo_agent_resident",
    Some("bytes"),
    "Resident memory of the agent",
);
const START: Family = gauge(
    "thermo_agent_start_time",
    Some("seconds"),
    "Unix time at which the agent started",
);
const READY: Family = gauge("thermo_agent_ready", None, "1 if every policy runs");
const WARNINGS: Family = gauge(
    "thermo_agent_warnings",
    None,
    "Things that limit the agent: GET /api/v1/status names them",
);

const EXPORT_FILES: Family = gauge(
    "thermo_export_waiting_files",
    None,
    "Files for the fleet that wait in the export folder; missing without [export]",
);
const EXPORT_BYTES: Family = gauge(
    "thermo_export_waiting",
    Some("bytes"),
    "Size of the files for the fleet that wait in the export folder",
);
const EXPORT_DROPPED: Family = Family {
    kind: Kind::Counter,
    ..gauge(
        "thermo_export_dropped_files",
        None,
        "Files for the fleet that were dropped because the export folder was full",
    )
};

/// The families of this file.
pub(super) const FAMILIES: &[Family] = &[
    BUILD,
    CPU,
    WATCHING,
    ACTING,
    BUDGET,
    RESIDENT,
    START,
    READY,
    WARNINGS,
    EXPORT_FILES,
    EXPORT_BYTES,
    EXPORT_DROPPED,
];

/// Writes the families.
pub(super) fn encode(status: &Status, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    BUILD.write(encoder, [([status.version.as_str()], 1.0)])?;
    let mut one = |family: &Family, value: f64| family.write(encoder, [([], value)]);
    one(&CPU, status.cpu_s)?;
    one(&WATCHING, status.watching_cpu_s)?;
    one(&ACTING, status.acting_cpu_s)?;
    one(&BUDGET, status.budget_cpu_share)?;
    one(&RESIDENT, status.resident_bytes as f64)?;
    one(&START, status.started_ms as f64 / 1000.0)?;
    one(&READY, if status.ready { 1.0 } else { 0.0 })?;
    one(&WARNINGS, status.warnings.len() as f64)?;
    let Some(export) = &status.export else {
        return Ok(());
    };
    one(&EXPORT_FILES, export.files as f64)?;
    one(&EXPORT_BYTES, export.bytes as f64)?;
    one(&EXPORT_DROPPED, export.dropped_files as f64)
}
