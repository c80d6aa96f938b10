//! How well monitoring sees: a recording of a workload, judged by what the workload says it touched.
//!
//! [`Truth`] is read from the file that `thermo-lab workload --truth` writes, [`judge`] compares it with the snapshots of a
//! recording, and a run of an experiment that leaves [`RECORDING`] beside [`TRUTH`] in its work folder has the outcome
//! among its measurements, so that trackers, patterns and settings are compared by the tables and pictures that all
//! experiments have.
//!
//! Not here: making the recording (the experiment file attaches a `thermo record`).

mod judge;
mod ranges;
mod truth;

use std::path::Path;

use thermo_recording::model::{Metadata, Record, Snapshot};
use thermo_report::Accumulator as _;
use thermo_report::info::{Info, InfoAccumulator};

pub use judge::{Judged, Nth, judge};
pub use truth::{Truth, TruthError};

use crate::metric::{self, Measurements};

/// The recording of a run, in its work folder.
pub const RECORDING: &str = "recording.arrow";
/// The truth of a run, in its work folder.
pub const TRUTH: &str = "truth.jsonl";

/// A recording and what it is worth.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Verdict {
    /// 1.
    pub schema: u32,
    /// How well it tells what is hot.
    #[serde(flatten)]
    pub judged: Judged,
    /// CPU time of looking, in percent of one CPU.
    pub monitoring_cpu_percent: Option<f64>,
    /// How memory was looked at, at last.
    pub plan: Option<String>,
}

/// Judges the recording at `recording` by the truth at `truth`.
///
/// # Errors
/// A sentence: one of them cannot be read, or nothing of the recording can be judged by that truth.
pub fn verdict(recording: &Path, truth: &Path) -> Result<Verdict, String> {
    let truth = Truth::read(truth).map_err(|error| error.to_string())?;
    let read = thermo_recording::read_all(recording).map_err(|error| error.to_string())?;
    let (metadata, records, _) = read;
    let snapshots: Vec<&Snapshot> = records
        .iter()
        .filter_map(|record| match record {
            Record::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        })
        .collect();
    let judged = judge(&snapshots, &truth).ok_or_else(|| {
        format!(
            "{}: no aggregation lies within a phase of the truth as a whole; record for longer, while the workload runs",
            recording.display()
        )
    })?;
    let info = info(&metadata, &records);
    Ok(Verdict {
        schema: 1,
        judged,
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

/// Removes what an earlier run left in `folder`.
pub(crate) fn begin(folder: &Path) {
    for name in [RECORDING, TRUTH] {
        drop(std::fs::remove_file(folder.join(name)));
    }
}

/// What a run that left a recording in `folder` is worth; nothing where it left none.
///
/// # Errors
/// Those of [`verdict`].
pub(crate) fn measure(folder: &Path) -> Result<Measurements, String> {
    let (recording, truth) = (folder.join(RECORDING), folder.join(TRUTH));
    if !recording.exists() || !truth.exists() {
        return Ok(Measurements::new());
    }
    Ok(verdict(&recording, &truth)?.measurements())
}

impl Verdict {
    fn measurements(&self) -> Measurements {
        let Judged {
            precision,
            recall,
            unknown_share,
            error,
            edge_error_pages,
            notice_s,
            ..
        } = self.judged;
        [
            (metric::PRECISION, Some(precision * 100.0)),
            (metric::RECALL, Some(recall * 100.0)),
            (metric::HOT_ERROR, Some(error * 100.0)),
            (metric::EDGE_ERROR, Some(edge_error_pages)),
            (metric::NOTICE, notice_s),
            (metric::UNKNOWN, Some(unknown_share * 100.0)),
            (metric::MONITORING_CPU, self.monitoring_cpu_percent),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }

    /// The head of a table, a row of it that begins with `name`, and a line of how precision and recall come about in
    /// the first aggregations of phases.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        let Judged {
            snapshots,
            precision,
            recall,
            unknown_share,
            error,
            edge_error_pages,
            notice_s,
            regions,
            ..
        } = self.judged;
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let notice = notice_s.map_or("-".to_owned(), |seconds| format!("{seconds:.2} s"));
        let looking = self
            .monitoring_cpu_percent
            .map_or("-".to_owned(), |cpu| format!("{cpu:.2} %"));
        let nth = |nth: &Nth| format!("{}: {:.3} {:.3}", nth.nth, nth.precision, nth.recall);
        let nth: Vec<String> = self.judged.nth.iter().map(nth).collect();
        let nth = nth.join(", ");
        format!(
            "{:<28} {:>6} {:>10} {:>8} {:>10} {:>11} {:>9} {:>8} {:>8} {:>8}\n\
             {name:<28} {snapshots:>6} {:>10} {:>8} {:>10} {edge_error_pages:>11.1} {notice:>9} {:>8} {regions:>8.0} {looking:>8}\n  \
             precision and recall in the aggregation of the phase: {nth}\n",
            "",
            "judged",
            "precision",
            "recall",
            "hot error",
            "edge, pages",
            "noticed",
            "unknown",
            "regions",
            "looking",
            percent(precision),
            percent(recall),
            percent(error),
            percent(unknown_share),
        )
    }
}
