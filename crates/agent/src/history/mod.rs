//! What the API tells of the past: series, heatmaps and advice from the segments of the history.
//!
//! [`thermo_recording::history`] writes and reads the segments; the reports of `thermo_report` do the
//! counting. This module chooses the part, and turns results into the types of [`crate::api`]. Each call
//! reads files, so it takes from milliseconds to seconds: at most the hours that are asked for, and of these
//! what the target needs.

mod advice;
mod heatmap;
mod series;

use std::path::{Path, PathBuf};

use thermo_recording::history::{History, HistoryError, Query, Records};
use thermo_report::Accumulator;
use thermo_units::Nanos;

use crate::api::{Period, Refusal, UnixMillis};

/// The most points or columns of an answer.
const MAX_COLUMNS: usize = 2000;
/// The most rows of a heatmap.
const MAX_ROWS: usize = 500;
/// Length of a period without a begin.
const DEFAULT_LENGTH: Nanos = Nanos::secs(3600);

/// Answers questions about the past from the history below a state directory.
#[derive(Debug, Clone)]
pub struct Past {
    state_dir: PathBuf,
}

/// A checked period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    from: Nanos,
    to: Nanos,
    columns: usize,
    rows: usize,
}

impl Past {
    /// Reads the history below `state_dir`.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
        }
    }

    /// Feeds the records of `period` to `accumulator`: all, or those that totals need.
    fn report<A: Accumulator>(
        &self,
        period: &Period,
        span: Span,
        totals_only: bool,
        mut accumulator: A,
    ) -> Result<A::Report, Refusal> {
        let query = Query {
            policy: period.policy.clone(),
            target: Some(period.target.clone()),
            from: Some(span.from),
            to: Some(span.to),
            totals_only,
        };
        let history = History::open(&self.state_dir).map_err(refusal)?;
        let mut records = history.records(&query).map_err(refusal)?;
        let mut has_any = false;
        for record in records.by_ref() {
            has_any = true;
            accumulator.add(&record);
        }
        let is_known = has_any || records.targets().iter().any(|known| known.name == period.target);
        is_known
            .then(|| accumulator.finish())
            .ok_or_else(|| no_target(period, &records))
    }
}

impl Span {
    /// The period, with what is left open filled in.
    fn new(period: &Period, now_ms: UnixMillis) -> Result<Self, Refusal> {
        let to = Nanos::millis(period.to_ms.unwrap_or(now_ms));
        let from = period.from_ms.map(Nanos::millis);
        let from = from.unwrap_or_else(|| to.saturating_sub(DEFAULT_LENGTH));
        if from >= to {
            return Err(Refusal::Invalid(
                "the period ends before it begins: give a `from` before `to`".to_owned(),
            ));
        }
        Ok(Self {
            from,
            to,
            columns: period.columns.clamp(1, MAX_COLUMNS),
            rows: period.rows.clamp(1, MAX_ROWS),
        })
    }

    /// The column of `time`.
    fn column(&self, time: Nanos) -> usize {
        let length = u128::from((self.to.saturating_sub(self.from)).0.max(1));
        let passed = u128::from(time.saturating_sub(self.from).0);
        let column = passed * self.columns as u128 / length;
        usize::try_from(column)
            .unwrap_or(usize::MAX)
            .min(self.columns - 1)
    }
}

fn refusal(error: HistoryError) -> Refusal {
    match error {
        HistoryError::Missing { .. } => {
            Refusal::Unavailable("there is no history yet: wait for the first ten seconds".to_owned())
        }
        other => Refusal::Unavailable(other.to_string()),
    }
}

/// No target of this name: which ones there are.
fn no_target(period: &Period, records: &Records) -> Refusal {
    let mut names: Vec<String> = records.targets().into_iter().map(|target| target.name).collect();
    names.dedup();
    let known = match names.is_empty() {
        true => "there are none".to_owned(),
        false => format!("there are {}", names.join(", ")),
    };
    Refusal::NotFound(format!(
        "the history has no target {:?} in this period: {known}",
        period.target
    ))
}

#[cfg(test)]
mod tests;
