//! Results as one self-contained HTML page: comparisons, then plots, then all tables.

use crate::metric::{self, Metric};
use crate::plot::{self, colour, escaped};
use crate::results::Results;

const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em}\
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:currentColor}\
.grid{stroke:currentColor;stroke-opacity:.13}.mark{stroke:currentColor;stroke-opacity:.6;stroke-dasharray:4 3}\
pre{overflow-x:auto;font-size:12px}.key span{display:inline-block;width:.8em;height:.8em;border-radius:50%;margin:0 .4em 0 1em}";

impl Results {
    /// The HTML page.
    #[must_use]
    pub fn html(&self) -> String {
        let title = escaped(&self.head.experiment);
        let mut page = format!(
            "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
             <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head>\
             <body><h1>{title}</h1><p>{}</p>{}",
            escaped(&self.introduction()),
            self.legend()
        );
        let ratios = self.ratios_text();
        if !ratios.is_empty() {
            page.push_str(&format!("<pre>{}</pre>", escaped(&ratios)));
        }
        for metric in self.metrics() {
            page.push_str(&format!(
                "<h2>{}</h2><p>{}. Each dot is a run, each bar a mean.</p>{}",
                escaped(&metric.heading()),
                escaped(&metric.about),
                self.dot_plot(&metric)
            ));
        }
        page.push_str(
            "<h2>Memory over time</h2><p>Resident memory plus the size of its swapped pages in zram, first repeat.</p>",
        );
        for workload in self.rows() {
            page.push_str(&format!(
                "<h3>{}</h3>{}",
                escaped(workload),
                self.memory_over_time(workload)
            ));
        }
        page + "<h2>Tables</h2><pre>" + &escaped(&self.table()) + "</pre></body></html>\n"
    }

    fn legend(&self) -> String {
        let one = |name: &str| {
            format!(
                "<span style=\"background:{}\"></span>{}",
                colour(self.index(name)),
                escaped(name)
            )
        };
        let keys: String = self.columns().into_iter().map(one).collect();
        format!("<p class=\"key\">{keys}</p>")
    }

    fn index(&self, configuration: &str) -> usize {
        self.head
            .configurations
            .iter()
            .position(|name| name == configuration)
            .unwrap_or(0)
    }

    /// A dot plot in percent of the mean under `orig`, so that workloads of all sizes share an axis. It is in
    /// the metric's unit when a workload has no such mean.
    fn dot_plot(&self, metric: &Metric) -> String {
        let rows = self.rows_of(metric);
        let base = |workload: &str| {
            let mean = self.cell(metric, workload, self.orig())?.summary.mean;
            (metric.compares && mean > 0.0).then_some(mean / 100.0)
        };
        let relative = rows.iter().all(|workload| base(workload).is_some());
        let row = |workload: &&'_ str| {
            let unit = if relative {
                base(workload).unwrap_or(1.0)
            } else {
                metric.scale
            };
            let dots = |with: &str| -> plot::Dots {
                let values = self.values(metric, workload, with);
                (
                    values.into_iter().map(|value| value / unit).collect(),
                    self.index(with),
                )
            };
            self.columns()
                .into_iter()
                .map(dots)
                .filter(|(values, _)| !values.is_empty())
                .collect::<Vec<_>>()
        };
        let drawn: Vec<plot::Row> = rows.iter().map(|workload| (*workload, row(workload))).collect();
        let unit = if relative {
            format!("% of {}", self.orig())
        } else {
            metric.unit.to_owned()
        };
        plot::dots(&drawn, &escaped(&unit), relative.then_some(100.0))
    }

    #[expect(clippy::cast_precision_loss, reason = "the error is far below one pixel")]
    fn memory_over_time(&self, workload: &str) -> String {
        let line = |with: &str| -> Option<plot::Line> {
            let run = *self.runs_of(workload, with).first()?;
            let point = |sample: &(u64, u64, u64)| {
                (
                    sample.0 as f64 / 1e3,
                    (sample.1 + sample.2) as f64 / f64::from(1 << 20),
                )
            };
            Some((run.samples.iter().map(point).collect(), self.index(with)))
        };
        let lines: Vec<plot::Line> = self.columns().into_iter().filter_map(line).collect();
        plot::lines(&lines, metric::MEMORY_UNIT)
    }
}
