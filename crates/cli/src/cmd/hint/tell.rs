//! What came of hints, in words and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use thermo_actions::hint::SkipReason;
use thermo_engine::Action;
use thermo_term::output;
use thermo_units::Bytes;

use super::Row;

/// Everything over all ranges.
#[derive(Debug, Default)]
struct Sums {
    advised: Bytes,
    changed: Option<Bytes>,
    left: BTreeMap<SkipReason, Bytes>,
}

fn sums<'a>(rows: impl Iterator<Item = &'a Row>) -> Sums {
    let mut sums = Sums::default();
    for row in rows {
        sums.advised += row.hinted.advised;
        if let Some(changed) = row.hinted.changed {
            sums.changed = Some(sums.changed.unwrap_or_default() + changed);
        }
        for (why, bytes) in &row.hinted.left {
            *sums.left.entry(*why).or_default() += *bytes;
        }
    }
    sums
}

/// One line of JSON. Addresses are numbers, as everywhere.
pub fn json(action: Action, dry_run: bool, rows: &[Row]) -> std::io::Result<()> {
    let sums = sums(rows.iter());
    let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
    let skipped = sums.left.iter();
    let skipped: Vec<Value> = skipped
        .map(|(why, bytes)| json!({"reason": why.name(), "bytes": bytes.0}))
        .collect();
    let range = |row: &Row| {
        json!({
            "pid": row.pid,
            "start": row.range.start.0,
            "end": row.range.end.0,
            "action": action.name(),
            "advised": row.hinted.advised.0,
            "changed": bytes(row.hinted.changed),
            "error": row.hinted.error,
        })
    };
    output::json(&json!({
        "schema": 1,
        "dry_run": dry_run,
        "action": action.name(),
        "bytes_advised": sums.advised.0,
        "bytes_changed": bytes(sums.changed),
        "skipped": skipped,
        "ranges": rows.iter().map(range).collect::<Vec<_>>(),
    }))
}

/// A line a process.
pub fn text(action: Action, rows: &[Row]) -> std::io::Result<()> {
    let mut text = String::new();
    for of_one in rows.chunk_by(|a, b| a.pid == b.pid) {
        let sums = sums(of_one.iter());
        let _ = write!(text, "pid {}: {action}: {} advised", of_one[0].pid, sums.advised);
        if let Some(changed) = sums.changed {
            let _ = write!(text, ", {changed} seen to have changed");
        }
        for (why, bytes) in &sums.left {
            let _ = write!(text, ", {} {bytes}", why.name());
        }
        text.push('\n');
        let first = of_one.iter().find_map(|row| row.hinted.error.as_deref());
        if let Some(error) = first {
            let _ = writeln!(text, "    in part: {error}");
        }
    }
    if text.is_empty() {
        text.push_str("nothing is meant by that\n");
    }
    output::text(&text)
}
