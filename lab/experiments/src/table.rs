//! Results as text: for each metric a table of workloads × configurations with overheads in parentheses and a
//! total, then the spread, then what can be proved.

use thermo_units::Bytes;

use crate::metric::Metric;
use crate::results::{Cell, Results};
use crate::stats::Summary;

impl Results {
    /// The tables, in the form of the DAMOS patches' reports.
    #[must_use]
    pub fn table(&self) -> String {
        let metrics = self.metrics();
        let mut text = format!("{}\n{}", self.introduction(), self.ratios_text());
        for metric in &metrics {
            text.push_str(&format!(
                "\n{}: {}\n{}",
                metric.heading(),
                metric.about,
                self.means(metric)
            ));
        }
        text.push_str(&self.findings_text(&metrics));
        text.push_str("\nAppendix: stdev, min and max among the repeated runs\n");
        for metric in &metrics {
            type Pick = fn(&Summary) -> f64;
            let picks: [(&str, Pick); 3] = [("stdev", |s| s.stdev), ("min", |s| s.min), ("max", |s| s.max)];
            for (name, pick) in picks {
                text.push_str(&format!("\n{}", self.spread(metric, name, pick)));
            }
        }
        text.push_str(&self.failures_text());
        text
    }

    /// One line: what was run, where, how often.
    #[must_use]
    pub fn introduction(&self) -> String {
        let (head, host) = (&self.head, &self.head.host);
        let good = self.runs.iter().filter(|run| run.failure.is_none());
        let warmed = good.clone().map(|run| run.warmed_bytes).min().unwrap_or(0);
        let mut text = format!(
            "{}: {} runs, {} workloads, {} configurations; Linux {}, {} CPUs, {}, THP {}",
            head.experiment,
            good.count(),
            self.rows().len(),
            self.columns().len(),
            host.kernel,
            host.cpus,
            Bytes(host.memory_bytes),
            host.thp
        );
        if warmed > 0 {
            text.push_str(&format!("; {} warmed before each run", Bytes(warmed)));
        }
        text
    }

    /// Workloads that have at least one good run, in order.
    pub(crate) fn rows(&self) -> Vec<&str> {
        let has = |name: &&str| {
            self.runs
                .iter()
                .any(|run| run.failure.is_none() && run.workload == **name)
        };
        self.head
            .workloads
            .iter()
            .map(String::as_str)
            .filter(has)
            .collect()
    }

    /// Workloads that have a measurement of `metric`, in order.
    pub(crate) fn rows_of(&self, metric: &Metric) -> Vec<&str> {
        let columns = self.columns();
        let has = |row: &&str| columns.iter().any(|with| self.cell(metric, row, with).is_some());
        self.rows().into_iter().filter(has).collect()
    }

    /// Configurations that have at least one good run, in order.
    pub(crate) fn columns(&self) -> Vec<&str> {
        let has = |name: &&str| {
            self.runs
                .iter()
                .any(|run| run.failure.is_none() && run.configuration == **name)
        };
        self.head
            .configurations
            .iter()
            .map(String::as_str)
            .filter(has)
            .collect()
    }

    /// The sum over all workloads of the means under `configuration`, with its overhead; nothing unless every
    /// workload has both.
    pub(crate) fn total(&self, metric: &Metric, configuration: &str) -> Option<(f64, Option<f64>)> {
        let sum = |configuration: &str| -> Option<f64> {
            self.rows()
                .iter()
                .map(|row| Some(self.cell(metric, row, configuration)?.summary.mean))
                .sum()
        };
        let total = sum(configuration).filter(|_| metric.adds_up)?;
        let base = self.base_of(configuration);
        let orig = (configuration != base).then(|| sum(base)).flatten();
        Some((
            total,
            orig.filter(|orig| *orig != 0.0)
                .map(|orig| (total / orig - 1.0) * 100.0),
        ))
    }

    fn means(&self, metric: &Metric) -> String {
        let columns = self.columns();
        let head = |name: &&str| {
            let base = self.base_of(name);
            if *name == base || !metric.compares {
                (*name).to_owned()
            } else if base == self.orig() {
                format!("{name} (overhead)")
            } else {
                format!("{name} (over {base})")
            }
        };
        let mut lines = vec![row(&metric.title, columns.iter().map(head))];
        for workload in self.rows_of(metric) {
            let cells = columns.iter().map(|with| {
                self.cell(metric, workload, with)
                    .map_or("-".to_owned(), |cell| shown(metric, &cell))
            });
            lines.push(row(workload, cells));
        }
        let totals: Vec<Option<(f64, Option<f64>)>> =
            columns.iter().map(|with| self.total(metric, with)).collect();
        if totals.iter().any(Option::is_some) {
            let cell = |total: &Option<(f64, Option<f64>)>| {
                total.map_or("-".to_owned(), |(sum, over)| {
                    with_overhead(metric.shown(sum), over, " ")
                })
            };
            lines.push(row("total", totals.iter().map(cell)));
        }
        aligned(&lines)
    }

    fn spread(&self, metric: &Metric, name: &str, pick: fn(&Summary) -> f64) -> String {
        let columns = self.columns();
        let mut lines = vec![row(
            &format!("{}_{name}", metric.title),
            columns.iter().map(|name| (*name).to_owned()),
        )];
        for workload in self.rows_of(metric) {
            let cells = columns.iter().map(|with| {
                let cell = self.cell(metric, workload, with);
                cell.map_or("-".to_owned(), |cell| metric.shown(pick(&cell.summary)))
            });
            lines.push(row(workload, cells));
        }
        aligned(&lines)
    }

    /// One sentence for each comparison: what differs for sure, and what may be chance.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for metric in self.metrics().into_iter().filter(|metric| metric.compares) {
            for with in self
                .columns()
                .into_iter()
                .filter(|with| *with != self.base_of(with))
            {
                for workload in self.rows() {
                    let Some(cell) = self.cell(&metric, workload, with) else {
                        continue;
                    };
                    let Some(welch) = cell.welch else { continue };
                    findings.push(Finding {
                        metric: metric.title.clone(),
                        workload: workload.to_owned(),
                        configuration: with.to_owned(),
                        overhead_percent: cell.overhead_percent,
                        p: welch.p,
                        provable: welch.is_provable(),
                    });
                }
            }
        }
        findings
    }

    fn findings_text(&self, metrics: &[Metric]) -> String {
        let (provable, open): (Vec<_>, Vec<_>) = self.findings().into_iter().partition(|one| one.provable);
        let base = if self.head.against.is_empty() {
            self.orig()
        } else {
            "what it is compared to"
        };
        let mut text = format!("\n* differs from {base} by Welch's test at 95 %.");
        if provable.is_empty() && open.is_empty() {
            return text + " Nothing can be tested: it takes two runs of each.\n";
        }
        let chance = (provable.len() + open.len()).div_ceil(20);
        text.push_str(&format!(
            " Provable: {} of {} differences (chance alone would show about {chance}).\n",
            provable.len(),
            provable.len() + open.len()
        ));
        for metric in metrics {
            let of = |list: &[Finding]| {
                let mine = list.iter().filter(|one| one.metric == metric.title);
                mine.map(|one| format!("{}/{}", one.workload, one.configuration))
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            let open = of(&open);
            if !open.is_empty() {
                text.push_str(&format!("  {}: not provable for {open}\n", metric.title));
            }
        }
        text
    }

    fn failures_text(&self) -> String {
        let lines = self.failures().into_iter().map(|run| {
            let why = run.failure.as_deref().unwrap_or_default();
            format!(
                "  {} under {}, repeat {}: {why}\n",
                run.workload,
                run.configuration,
                run.repeat + 1
            )
        });
        let lines: String = lines.collect();
        if lines.is_empty() {
            lines
        } else {
            format!("\nFailed runs, not in the tables:\n{lines}")
        }
    }
}

/// One comparison with `orig`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(crate) struct Finding {
    pub(crate) metric: String,
    pub(crate) workload: String,
    pub(crate) configuration: String,
    pub(crate) overhead_percent: Option<f64>,
    pub(crate) p: f64,
    pub(crate) provable: bool,
}

fn shown(metric: &Metric, cell: &Cell) -> String {
    let mark = if cell.welch.is_some_and(|welch| welch.is_provable()) {
        "*"
    } else {
        " "
    };
    with_overhead(metric.shown(cell.summary.mean), cell.overhead_percent, mark)
}

fn with_overhead(value: String, percent: Option<f64>, mark: &str) -> String {
    percent.map_or(value.clone(), |percent| format!("{value} ({percent:6.2}){mark}"))
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(cells).collect()
}

/// Columns two spaces apart, the first to the left, the others to the right.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|at| wide(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line.push_str(&if at == 0 {
                format!("{cell:<width$}")
            } else {
                format!("  {cell:>width$}")
            });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
