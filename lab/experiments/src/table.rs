//! Results as text: for each metric a table of workloads by configurations with overheads in parentheses and
//! a total, then the significant differences, then the spread.

use thermo_units::Bytes;

use thermo_report::style::Table;

use crate::metric::Metric;
use crate::results::{Cell, Results};
use crate::stats::Summary;

impl Results {
    /// All tables, in the format of the reports of the kernel's DAMOS patches.
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

    /// One line with the experiment, the number of runs and the machine.
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

    /// Workloads with at least one successful run, in order.
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

    /// Workloads with a measurement of `metric`, in order.
    pub(crate) fn rows_of(&self, metric: &Metric) -> Vec<&str> {
        let columns = self.columns();
        let has = |row: &&str| columns.iter().any(|with| self.cell(metric, row, with).is_some());
        self.rows().into_iter().filter(has).collect()
    }

    /// Configurations with at least one successful run, in order.
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

    /// The sum of the means over all workloads under `configuration`, and its overhead. `None` unless every
    /// workload has a mean; no overhead unless every workload has one under the baseline.
    pub(crate) fn total(&self, metric: &Metric, configuration: &str) -> Option<(f64, Option<f64>)> {
        let sum = |configuration: &str| -> Option<f64> {
            self.rows()
                .iter()
                .map(|row| Some(self.cell(metric, row, configuration)?.summary.mean))
                .sum()
        };
        let total = sum(configuration).filter(|_| metric.adds_up)?;
        let base = self.baseline_of(configuration);
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
            let base = self.baseline_of(name);
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
                    .map_or("-".to_owned(), |cell| cell_text(metric, &cell))
            });
            lines.push(row(workload, cells));
        }
        let totals: Vec<Option<(f64, Option<f64>)>> =
            columns.iter().map(|with| self.total(metric, with)).collect();
        if totals.iter().any(Option::is_some) {
            let cell = |total: &Option<(f64, Option<f64>)>| {
                total.map_or("-".to_owned(), |(sum, over)| {
                    with_overhead(metric.format(sum), over, " ")
                })
            };
            lines.push(row("total", totals.iter().map(cell)));
        }
        Table::of_rows(1, lines).text()
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
                cell.map_or("-".to_owned(), |cell| metric.format(pick(&cell.summary)))
            });
            lines.push(row(workload, cells));
        }
        Table::of_rows(1, lines).text()
    }

    /// All comparisons, with their significance.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for metric in self.metrics().into_iter().filter(|metric| metric.compares) {
            for with in self
                .columns()
                .into_iter()
                .filter(|with| *with != self.baseline_of(with))
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
                        significant: welch.is_significant(),
                    });
                }
            }
        }
        findings
    }

    fn findings_text(&self, metrics: &[Metric]) -> String {
        let (significant, others): (Vec<_>, Vec<_>) =
            self.findings().into_iter().partition(|one| one.significant);
        let base = if self.head.against.is_empty() {
            self.orig()
        } else {
            "its baseline"
        };
        let mut text = format!("\n* differs from {base} by Welch's test at 95 %.");
        if significant.is_empty() && others.is_empty() {
            return text + " Nothing can be tested: the test needs two runs of each.\n";
        }
        let total = significant.len() + others.len();
        text.push_str(&format!(
            " Significant: {} of {total} differences (chance alone would give about {}).\n",
            significant.len(),
            total.div_ceil(20)
        ));
        for metric in metrics {
            let of_metric = others.iter().filter(|one| one.metric == metric.title);
            let names: Vec<String> = of_metric
                .map(|one| format!("{}/{}", one.workload, one.configuration))
                .collect();
            if !names.is_empty() {
                text.push_str(&format!(
                    "  {}: not significant for {}\n",
                    metric.title,
                    names.join(", ")
                ));
            }
        }
        text
    }

    fn failures_text(&self) -> String {
        let lines = self.failures().into_iter().map(|run| {
            let reason = run.failure.as_deref().unwrap_or_default();
            format!(
                "  {} under {}, repeat {}: {reason}\n",
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

/// A comparison with the baseline.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(crate) struct Finding {
    pub(crate) metric: String,
    pub(crate) workload: String,
    pub(crate) configuration: String,
    pub(crate) overhead_percent: Option<f64>,
    pub(crate) p: f64,
    pub(crate) significant: bool,
}

fn cell_text(metric: &Metric, cell: &Cell) -> String {
    let mark = if cell.welch.is_some_and(|welch| welch.is_significant()) {
        "*"
    } else {
        " "
    };
    with_overhead(metric.format(cell.summary.mean), cell.overhead_percent, mark)
}

fn with_overhead(value: String, percent: Option<f64>, mark: &str) -> String {
    percent.map_or(value.clone(), |percent| format!("{value} ({percent:6.2}){mark}"))
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(cells).collect()
}
