//! The table of the kernel's LRU-sorting patches: metrics by the names used there, a column for each
//! configuration, and a column for each ratio such as `plrus/mprs`.
//!
//! It is printed when a configuration has `against`. The first table is for all workloads together: each
//! repeat counts with its mean over workloads, so that the spread is that of repeats. The others are for
//! single workloads.

use serde_json::{Value, json};

use crate::metric;
use crate::results::Results;
use crate::stats::{Summary, Welch, welch};
use thermo_report::style::Table;

/// A metric of the table.
struct Row {
    key: &'static str,
    name: &'static str,
    /// Factor from the base unit to the printed unit.
    factor: f64,
}

const ROWS: [Row; 6] = [
    row(metric::RUNTIME, "runtime_seconds", 1.0),
    row(metric::MAJOR_FAULTS, "pgmajfaults", 1.0),
    row(metric::PSI_SOME, "memory_psi_some_us", 1e6),
    row(metric::CPU_USER, "cpu_user_seconds", 1.0),
    row(metric::CPU_SYSTEM, "cpu_system_seconds", 1.0),
    row(metric::THERMO_CPU, "thermo_cpu_percent", 1.0),
];

const fn row(key: &'static str, name: &'static str, factor: f64) -> Row {
    Row { key, name, factor }
}

/// A configuration compared with its baseline.
struct Ratio {
    name: String,
    ratio: Option<f64>,
    welch: Option<Welch>,
}

impl Results {
    /// The tables as text. Empty when no configuration has `against`.
    #[must_use]
    pub fn ratios_text(&self) -> String {
        if self.head.against.is_empty() {
            return String::new();
        }
        let rows = self.rows();
        let mut text = String::new();
        if rows.len() > 1 {
            text = format!("\nall workloads, averaged\n{}", self.ratios_of(&rows));
        }
        for workload in &rows {
            text.push_str(&format!("\n{workload}\n{}", self.ratios_of(&[*workload])));
        }
        text + "(* significant at 95 % by Welch's test)\n"
    }

    fn ratios_of(&self, workloads: &[&str]) -> String {
        let head = ["metric".to_owned()].into_iter();
        let names = self.columns().into_iter().map(str::to_owned);
        let mut lines: Vec<Vec<String>> = vec![
            head.chain(names)
                .chain(self.pairs().into_iter().map(|pair| pair.0))
                .collect(),
        ];
        for row in &ROWS {
            let cells = self
                .columns()
                .into_iter()
                .map(|with| self.averaged(row, workloads, with));
            let cells: Vec<Option<Summary>> = cells.collect();
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let shown = cells
                .iter()
                .map(|cell| cell.map_or("-".to_owned(), |cell| format!("{:.2}", cell.mean * row.factor)));
            let ratios = self.ratios(row, workloads);
            let ratios = ratios.iter().map(|ratio| {
                let mark = if ratio.welch.is_some_and(|welch| welch.is_significant()) {
                    "*"
                } else {
                    " "
                };
                ratio
                    .ratio
                    .map_or("-".to_owned(), |ratio| format!("{ratio:.2}{mark}"))
            });
            lines.push(
                [row.name.to_owned()]
                    .into_iter()
                    .chain(shown)
                    .chain(ratios)
                    .collect(),
            );
        }
        Table::of_rows(1, lines).text()
    }

    /// The columns of ratios: head, configuration, and its baseline.
    fn pairs(&self) -> Vec<(String, &str, &str)> {
        let columns = self.columns();
        let with_base = columns.into_iter().map(|with| (with, self.baseline_of(with)));
        let pairs = with_base.filter(|(with, base)| with != base && *base != self.orig());
        pairs
            .map(|(with, base)| (format!("{with}/{base}"), with, base))
            .collect()
    }

    fn ratios(&self, row: &Row, workloads: &[&str]) -> Vec<Ratio> {
        let one = |(name, with, base)| {
            let (with, base) = (
                self.averaged(row, workloads, with),
                self.averaged(row, workloads, base),
            );
            let both = with.zip(base);
            Ratio {
                name,
                ratio: both.and_then(|(with, base)| (base.mean != 0.0).then_some(with.mean / base.mean)),
                welch: both.and_then(|(with, base)| welch(&with, &base)),
            }
        };
        self.pairs().into_iter().map(one).collect()
    }

    /// The means over `workloads` of each repeat in which all of them have a result, summarised.
    fn averaged(&self, row: &Row, workloads: &[&str], with: &str) -> Option<Summary> {
        let runs: Vec<_> = workloads
            .iter()
            .map(|workload| self.runs_of(workload, with))
            .collect();
        let repeats = runs.first()?.iter().map(|run| run.repeat);
        #[expect(clippy::cast_precision_loss, reason = "workloads are few")]
        let mean_of = |repeat: usize| -> Option<f64> {
            let values = runs.iter().map(|runs| {
                let run = runs.iter().find(|run| run.repeat == repeat)?;
                run.measured.get(row.key).copied()
            });
            Some(values.sum::<Option<f64>>()? / workloads.len() as f64)
        };
        Summary::from_values(&repeats.filter_map(mean_of).collect::<Vec<_>>())
    }

    /// The tables as JSON: the ratios of each metric for each set of workloads.
    pub(crate) fn ratios_json(&self) -> Value {
        let rows = self.rows();
        let all = (rows.len() > 1).then(|| ("all", rows.clone()));
        let sets = all.into_iter().chain(rows.iter().map(|one| (*one, vec![*one])));
        let of_set = |(name, workloads): (&str, Vec<&str>)| {
            let of_row = |row: &Row| {
                let ratios = self
                    .ratios(row, &workloads)
                    .into_iter()
                    .map(|ratio| json!({"of": ratio.name, "ratio": ratio.ratio, "welch": ratio.welch}));
                json!({"metric": row.name, "ratios": Vec::from_iter(ratios)})
            };
            json!({"workload": name, "metrics": Vec::from_iter(ROWS.iter().map(of_row))})
        };
        Vec::from_iter(sets.map(of_set)).into()
    }
}
