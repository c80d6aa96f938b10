//! Metrics of the ledger. Its sums survive restarts.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use thermo_agent::api::{Ledger, LedgerRow, NamedBytes};

use super::family::{Family, Kind};

const GIB_HOUR: f64 = (1_u64 << 30) as f64 * 3600.0;

const fn counter(
    name: &'static str,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family {
        name,
        unit: Some(unit),
        kind: Kind::Counter,
        labels,
        help,
    }
}

const ROW: &[&str] = &["policy", "target"];
const ACTION: &[&str] = &["policy", "target", "action"];

const ACTED: Family = counter("thermo_acted", "bytes", ACTION, "Memory acted on, by action");
// The last look counts, and the next may find less.
const WOULD_ACT: Family = Family {
    kind: Kind::Gauge,
    ..counter(
        "thermo_would_act",
        "bytes",
        ACTION,
        "Memory that a dry run would have acted on at its last look, by action",
    )
};
const SKIPPED: Family = counter(
    "thermo_skipped",
    "bytes",
    &["policy", "target", "reason"],
    "Memory that matched and was left alone, by reason",
);
const RETURNED: Family = counter(
    "thermo_returned",
    "bytes",
    &["policy", "target", "within_seconds"],
    "Memory that came back within 60, 600 and 3600 seconds after it was paged out. Each includes those before",
);
const MOVED_BACK: Family = counter(
    "thermo_moved_back",
    "bytes",
    ROW,
    "Memory that went back to a memory node from which it had been moved before",
);
const NET_SAVED: Family = Family {
    kind: Kind::Gauge,
    ..counter(
        "thermo_net_saved",
        "byte_seconds",
        ROW,
        "Net saving over time: it shrinks while swap occupies more than it saves",
    )
};
const WATCHING: Family = counter("thermo_watching_cpu", "seconds", ROW, "CPU time of watching");
const ACTING: Family = counter("thermo_acting_cpu", "seconds", ROW, "CPU time of acting");
const WATCHED: Family = counter(
    "thermo_watched",
    "seconds",
    ROW,
    "Time for which the target was watched",
);

/// The families of this file.
pub(super) const FAMILIES: &[Family] = &[
    ACTED, WOULD_ACT, SKIPPED, RETURNED, MOVED_BACK, NET_SAVED, WATCHING, ACTING, WATCHED,
];

/// Writes the families.
pub(super) fn encode(ledger: &Ledger, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let rows = &ledger.rows;
    let mut named = |family: &Family, values: fn(&LedgerRow) -> &[NamedBytes]| {
        let samples = rows.iter().flat_map(|row| {
            let values = values(row).iter();
            values.map(|value| {
                (
                    [row.policy.as_str(), &row.target, &value.name],
                    value.bytes as f64,
                )
            })
        });
        family.write(encoder, samples)
    };
    named(&ACTED, |row| &row.acted_bytes)?;
    named(&WOULD_ACT, |row| &row.would_act_bytes)?;
    named(&SKIPPED, |row| &row.skipped_bytes)?;
    let returned = rows.iter().flat_map(|row| {
        [
            ("60", row.back_1min_bytes),
            ("600", row.back_10min_bytes),
            ("3600", row.back_1h_bytes),
        ]
        .map(|(within, bytes)| ([row.policy.as_str(), &row.target, within], bytes as f64))
    });
    RETURNED.write(encoder, returned)?;
    let mut each = |family: &Family, value: fn(&LedgerRow) -> f64| {
        let samples = rows
            .iter()
            .map(|row| ([row.policy.as_str(), &row.target], value(row)));
        family.write(encoder, samples)
    };
    each(&MOVED_BACK, |row| row.moved_back_bytes as f64)?;
    each(&NET_SAVED, |row| row.net_saved_gib_hours * GIB_HOUR)?;
    each(&WATCHING, |row| row.watching_cpu_s)?;
    each(&ACTING, |row| row.acting_cpu_s)?;
    each(&WATCHED, |row| row.watched_s)
}
