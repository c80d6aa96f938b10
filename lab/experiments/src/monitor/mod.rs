//! Accuracy of monitoring: compares a recording of a workload with the accesses that the workload logged.
//!
//! [`Truth`] is read from the file that `thermo-lab workload --truth` writes. [`measure_accuracy`] compares
//! it with the snapshots of a recording. A run that leaves both [`RECORDING`] and [`TRUTH`] in its work
//! folder gets the results as measurements, so that the tables and plots of experiments compare monitoring
//! methods, patterns and settings.
//!
//! The recording is made by a `thermo record` that the experiment file attaches, not by this module.

mod accuracy;
mod ranges;
mod truth;

use std::path::Path;

use thermo_recording::model::{Metadata, Record, Snapshot};
use thermo_report::Accumulator as _;
use thermo_report::info::{Info, InfoAccumulator};
use thermo_report::style::Table;

pub use accuracy::{Accuracy, NthAccuracy, measure_accuracy};
pub use truth::{Truth, TruthError};

use crate::metric::{self, Measurements};

/// File name of a run's recording, in its work folder.
pub const RECORDING: &str = "recording.arrow";
/// File name of a run's truth, in its work folder.
pub const TRUTH: &str = "truth.jsonl";

/// Accuracy and cost of a recording.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Evaluation {
    /// Version of this format: 1.
    pub schema: u32,
    /// Accuracy of hot memory.
    #[serde(flatten)]
    pub accuracy: Accuracy,
    /// CPU time of monitoring, in percent of one CPU.
    pub monitoring_cpu_percent: Option<f64>,
    /// The last monitoring plan in the recording.
    pub plan: Option<String>,
}

/// Evaluates the recording at `recording` against the truth file at `truth`.
///
/// # Errors
/// A sentence: a file cannot be read, or no aggregation of the recording lies within a phase of the truth.
pub fn evaluate(recording: &Path, truth: &Path) -> Result<Evaluation, String> {
    let truth = Truth::read(truth).map_err(|error| error.to_string())?;
    let (metadata, records, _) = thermo_recording::read_all(recording).map_err(|error| error.to_string())?;
    let snapshots: Vec<&Snapshot> = records
        .iter()
        .filter_map(|record| match record {
            Record::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        })
        .collect();
    let accuracy = measure_accuracy(&snapshots, &truth).ok_or_else(|| {
        format!(
            "{}: no aggregation interval lies completely within a phase of the workload; record for longer, while \
             the workload runs",
            recording.display()
        )
    })?;
    let info = info(&metadata, &records);
    Ok(Evaluation {
        schema: 1,
        accuracy,
        monitoring_cpu_percent: info.cost.monitoring_cpu_percent,
        plan: info
            .notes
            .iter()
            .rev()
            .find(|note| note.kind == "plan")
            .map(|note| note.text.clone()),
    })
}

fn info(metadata: &Metadata, records: &[Record]) -> Info {
    let mut info = InfoAccumulator::new(metadata);
    records.iter().for_each(|record| info.add(record));
    info.finish()
}

/// Removes the recording and the truth of an earlier run from `folder`.
pub(crate) fn remove_old_files(folder: &Path) {
    for name in [RECORDING, TRUTH] {
        drop(std::fs::remove_file(folder.join(name)));
    }
}

/// Evaluates the recording in `folder`. Empty when the run left no recording or no truth.
///
/// # Errors
/// Those of [`evaluate`].
pub(crate) fn measure(folder: &Path) -> Result<Measurements, String> {
    let (recording, truth) = (folder.join(RECORDING), folder.join(TRUTH));
    if !recording.exists() || !truth.exists() {
        return Ok(Measurements::new());
    }
    Ok(evaluate(&recording, &truth)?.measurements())
}

impl Evaluation {
    fn measurements(&self) -> Measurements {
        let Accuracy {
            precision,
            recall,
            unknown_share,
            hot_error,
            edge_error_pages,
            detection_delay_s,
            ..
        } = self.accuracy;
        [
            (metric::PRECISION, Some(precision * 100.0)),
            (metric::RECALL, Some(recall * 100.0)),
            (metric::HOT_ERROR, Some(hot_error * 100.0)),
            (metric::EDGE_ERROR, Some(edge_error_pages)),
            (metric::DETECTION_DELAY, detection_delay_s),
            (metric::UNKNOWN, Some(unknown_share * 100.0)),
            (metric::MONITORING_CPU, self.monitoring_cpu_percent),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }

    /// A table head, a row that begins with `name`, and a line with precision and recall of the first
    /// aggregations of phases.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        let Accuracy {
            snapshots,
            precision,
            recall,
            unknown_share,
            hot_error,
            edge_error_pages,
            detection_delay_s,
            regions,
            ..
        } = self.accuracy;
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let delay = detection_delay_s.map_or("-".to_owned(), |seconds| format!("{seconds:.2} s"));
        let cpu = self
            .monitoring_cpu_percent
            .map_or("-".to_owned(), |cpu| format!("{cpu:.2} %"));
        let nth = |nth: &NthAccuracy| format!("{}: {:.3} {:.3}", nth.nth, nth.precision, nth.recall);
        let nth: Vec<String> = self.accuracy.nth.iter().map(nth).collect();
        let nth = nth.join(", ");
        let headings = [
            "",
            "judged",
            "precision",
            "recall",
            "hot error",
            "edge, pages",
            "delay",
            "unknown",
            "regions",
            "CPU",
        ];
        let mut table = Table::new(1, &headings);
        table.row([
            name.to_owned(),
            snapshots.to_string(),
            percent(precision),
            percent(recall),
            percent(hot_error),
            format!("{edge_error_pages:.1}"),
            delay,
            percent(unknown_share),
            format!("{regions:.0}"),
            cpu,
        ]);
        let table = table.text();
        format!("{table}  precision and recall in aggregation N of each phase: {nth}\n")
    }
}
