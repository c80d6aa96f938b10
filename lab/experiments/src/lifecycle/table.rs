//! The table of the kernel patches of 2019: counter, A, B, difference and ratio, with the significance of the
//! difference.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};
use thermo_report::style::Table;

use super::{Arm, Results};
use crate::stats::{Summary, Welch, welch};

/// A row.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    name: String,
    a: Summary,
    b: Summary,
    welch: Option<Welch>,
}

impl Results {
    /// The table as text: what users notice first, then the kernel's counters.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::new(1, &["counter", "A", "B", "delta", "ratio(%)", "p", ""]);
        for row in self.rows() {
            let ratio = row.b.overhead_percent(&row.a);
            let is_significant = row.welch.is_some_and(|welch| welch.is_significant());
            table.row([
                row.name,
                format!("{:.2}", row.a.mean),
                format!("{:.2}", row.b.mean),
                format!("{:.2}", row.b.mean - row.a.mean),
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
                row.welch
                    .map_or_else(|| "-".to_owned(), |welch| format!("{:.3}", welch.p)),
                if is_significant { "*" } else { "" }.to_owned(),
            ]);
        }
        let mut text = table.text();
        let runs = |arm| {
            self.runs
                .iter()
                .filter(|run| run.arm == arm && run.failure.is_none())
                .count()
        };
        let _ = writeln!(
            text,
            "\nmeans of {} runs without hints (A) and {} with hints (B); *: significant at 95 % by Welch's test",
            runs(Arm::A),
            runs(Arm::B)
        );
        for failed in self.failures() {
            let reason = failed.failure.as_deref().unwrap_or_default();
            let _ = writeln!(
                text,
                "repeat {}, {:?} failed: {reason}",
                failed.repeat + 1,
                failed.arm
            );
        }
        text
    }

    /// The table as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let row = |row: Row| {
            json!({
                "counter": row.name,
                "a": row.a,
                "b": row.b,
                "delta": row.b.mean - row.a.mean,
                "ratio_percent": row.b.overhead_percent(&row.a),
                "welch": row.welch,
            })
        };
        json!({
            "schema": 1,
            "rows": self.rows().into_iter().map(row).collect::<Vec<_>>(),
            "failures": self.failures(),
        })
    }

    fn rows(&self) -> Vec<Row> {
        let names: BTreeSet<&String> = self.runs.iter().flat_map(|run| run.measured.keys()).collect();
        let mut names: Vec<&String> = names.into_iter().collect();
        names.sort_by_key(|name| (rank(name), name.as_str()));
        let row = |name: &String| {
            let a = Summary::from_values(&self.values(Arm::A, name))?;
            let b = Summary::from_values(&self.values(Arm::B, name))?;
            let name = name.clone();
            Some(Row {
                name,
                a,
                b,
                welch: welch(&a, &b),
            })
        };
        let is_zero =
            |row: &Row| row.a.max == 0.0 && row.b.max == 0.0 && row.a.min == 0.0 && row.b.min == 0.0;
        names
            .into_iter()
            .filter_map(row)
            .filter(|row| !is_zero(row))
            .collect()
    }
}

/// Sort key: what users notice comes before the kernel's counters.
fn rank(name: &str) -> usize {
    let groups = [
        "kills",
        "deaths",
        "starts.",
        "launch_ms.",
        "cold_ms.",
        "hot_ms.",
        "cpu_s.",
        "runtime_s",
        "memory.",
        "memcg.",
    ];
    groups
        .iter()
        .position(|group| name.starts_with(group))
        .unwrap_or(groups.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::super::Run;
    use super::super::counters::Counters;
    use super::*;

    #[test]
    fn table_has_columns_of_kernel_patches() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::open(folder.path(), "", 1).unwrap();
        for (repeat, kills) in [10.0, 11.0, 12.0].into_iter().enumerate() {
            for (arm, share) in [(Arm::A, 1.0), (Arm::B, 0.5)] {
                let measured = Counters::from(
                    [
                        ("kills", kills * share),
                        ("allocstall_dma", 0.0),
                        ("pgscan_direct", 100.0),
                    ]
                    .map(|(name, number)| (name.to_owned(), number)),
                );
                results.append(Run::new(arm, repeat, Ok(measured))).unwrap();
            }
        }
        let table = results.table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(
            lines[1].starts_with("kills") && lines[1].contains("-50.00") && lines[1].ends_with('*'),
            "{table}"
        );
        assert!(
            lines[2].starts_with("pgscan_direct") && lines[2].contains("0.00"),
            "{table}"
        );
        assert!(
            !table.contains("allocstall_dma") && table.contains("3 runs without"),
            "{table}"
        );
        assert_eq!(results.json()["rows"][0]["ratio_percent"], -50.0);
    }
}
