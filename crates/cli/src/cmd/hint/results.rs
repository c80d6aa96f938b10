//! Results of hints, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use thermo_actions::hint::SkipReason;
use thermo_engine::Action;
use thermo_term::output;
use thermo_units::{Bytes, printable};

use super::Row;
use crate::action_words::verified_effect;

/// Sums over several ranges.
#[derive(Debug, Default)]
struct Sums {
    advised: Bytes,
    changed: Option<Bytes>,
    skipped: BTreeMap<SkipReason, Bytes>,
}

fn sums<'a>(rows: impl Iterator<Item = &'a Row>) -> Sums {
    let mut sums = Sums::default();
    for row in rows {
        sums.advised += row.hinted.advised;
        if let Some(changed) = row.hinted.changed {
            sums.changed = Some(sums.changed.unwrap_or_default() + changed);
        }
        for (why, bytes) in &row.hinted.skipped {
            *sums.skipped.entry(*why).or_default() += *bytes;
        }
    }
    sums
}

/// Prints one line of JSON. Addresses are numbers.
pub fn print_json(action: Action, dry_run: bool, rows: &[Row]) -> std::io::Result<()> {
    let sums = sums(rows.iter());
    let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
    let skipped = sums.skipped.iter();
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

/// Prints a line for each process, or `nothing` if there is no row.
pub fn print_text(action: Action, rows: &[Row], nothing: &str) -> std::io::Result<()> {
    match rows {
        [] => output::text(nothing),
        rows => output::text(&printable(&text(action, rows))),
    }
}

fn text(action: Action, rows: &[Row]) -> String {
    let mut text = String::new();
    for process_rows in rows.chunk_by(|a, b| a.pid == b.pid) {
        let sums = sums(process_rows.iter());
        let result = match verified_effect(action).zip(sums.changed) {
            None if action == Action::Stat => {
                let selected: Bytes = process_rows.iter().map(|row| row.range.len()).sum();
                format!("{} ranges of {selected} selected", process_rows.len())
            }
            Some((effect, changed)) => format!("{changed} {effect} of {} advised", sums.advised),
            None => format!("{} advised", sums.advised),
        };
        let _ = write!(text, "pid {}: {action}: {result}", process_rows[0].pid);
        text.push_str(&skipped_text(
            sums.skipped.iter().map(|(why, bytes)| (why.name(), *bytes)),
        ));
        text.push('\n');
        let first = process_rows.iter().find_map(|row| row.hinted.error.as_deref());
        if let Some(error) = first {
            let _ = writeln!(text, "    incomplete: {error}");
        }
    }
    text
}

/// `; skipped: 4.00 KiB shared, 8.00 KiB young`; empty when nothing was skipped.
pub fn skipped_text<'a>(skipped: impl Iterator<Item = (&'a str, Bytes)>) -> String {
    let skipped: Vec<String> = skipped.map(|(why, bytes)| format!("{bytes} {why}")).collect();
    if skipped.is_empty() {
        String::new()
    } else {
        format!("; skipped: {}", skipped.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_actions::hint::HintResult;
    use thermo_engine::ops::Skip;
    use thermo_units::AddrRange;

    fn row(changed: Option<Bytes>) -> Row {
        let hinted = HintResult {
            advised: Bytes::mib(4),
            changed,
            skipped: vec![(SkipReason::Skip(Skip::Young), Bytes::mib(1))],
            error: Some("the process has ended".to_owned()),
        };
        Row {
            pid: 7,
            range: AddrRange::new(0, 5 << 20),
            hinted,
        }
    }

    #[test]
    fn text_distinguishes_paged_out_from_advised() {
        assert_eq!(
            text(Action::Pageout, &[row(Some(Bytes::mib(3)))]),
            "pid 7: pageout: 3.00 MiB paged out of 4.00 MiB advised; skipped: 1.00 MiB young\n    \
             incomplete: the process has ended\n"
        );
        assert!(text(Action::Cold, &[row(None)]).starts_with("pid 7: cold: 4.00 MiB advised; skipped"));
        assert!(text(Action::Stat, &[row(None)]).starts_with("pid 7: stat: 1 ranges of 5.00 MiB selected"));
    }
}
