//! What a workload says it touched, and the phases of it.

use std::path::{Path, PathBuf};

use thermo_units::AddrRange;
use thermo_workload::Truth as Span;

use super::ranges::{joined, likeness};

/// Spans whose bytes are as alike as this belong to one phase: what is touched at random differs a little each time.
const SAME_PHASE: f64 = 0.9;
/// A phase has at least so many spans; shorter ones are those in which two phases mix.
const FEWEST_SPANS: usize = 4;

/// What was touched when, from the file of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// The process that did it.
    pub pid: u32,
    /// Times in which the same was touched, ascending.
    pub phases: Vec<Phase>,
}

/// A span of time in which about the same bytes were touched.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// When it began, on `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What was touched: ascending, disjoint.
    pub ranges: Vec<AddrRange>,
    spans: usize,
}

/// Why a truth cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TruthError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line is not one of a truth.
    #[error("{path}:{line}: {message}; `thermo-lab workload --truth` writes such files", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

impl Truth {
    /// Reads the file at `path`; a last line that is not whole is left out.
    ///
    /// # Errors
    /// It cannot be read, has no whole line, or one that is not of a truth.
    pub fn read(path: &Path) -> Result<Self, TruthError> {
        let text = std::fs::read_to_string(path).map_err(|source| TruthError::File {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|(line, message)| TruthError::Line {
            path: path.to_owned(),
            line,
            message,
        })
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut pid = None;
        let mut phases: Vec<Phase> = Vec::new();
        for (nth, line) in whole.lines().enumerate() {
            let span = Span::parse(line).map_err(|error| (nth + 1, error.to_string()))?;
            if pid.is_some_and(|pid| pid != span.pid) {
                return Err((nth + 1, "a second process: a truth is of one".to_owned()));
            }
            pid = Some(span.pid);
            add(&mut phases, span);
        }
        phases.retain(|phase| phase.spans >= FEWEST_SPANS);
        let pid = pid.ok_or_else(|| (1, "there is no whole line".to_owned()))?;
        Ok(Self { pid, phases })
    }
}

/// Adds a span to the last phase, or begins one.
fn add(phases: &mut Vec<Phase>, span: Span) {
    let ranges = joined(span.ranges);
    match phases.last_mut() {
        Some(last) if likeness(&last.ranges, &ranges) >= SAME_PHASE => {
            last.end_ns = span.end.0;
            last.spans += 1;
            if last.ranges != ranges {
                last.ranges = joined([std::mem::take(&mut last.ranges), ranges].concat());
            }
        }
        _ => phases.push(Phase {
            start_ns: span.start.0,
            end_ns: span.end.0,
            ranges,
            spans: 1,
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn line(start: u64, ranges: &str) -> String {
        format!(
            r#"{{"start_ns":{start},"end_ns":{},"pid":7,"ranges":{ranges}}}"#,
            start + 100
        ) + "\n"
    }

    #[test]
    fn spans_become_phases_and_those_that_mix_two_are_left_out() {
        let mut text = String::new();
        (0..5).for_each(|nth| text += &line(nth * 100, "[[0,40960]]"));
        text += &line(500, "[[0,40960],[81920,122880]]");
        (6..12).for_each(|nth| text += &line(nth * 100, "[[81920,102400],[102400,122880]]"));
        text += r#"{"start_ns":12"#;
        let truth = Truth::parse(&text).unwrap();
        assert_eq!(truth.pid, 7);
        let phases: Vec<(u64, u64, Vec<AddrRange>)> = truth
            .phases
            .into_iter()
            .map(|phase| (phase.start_ns, phase.end_ns, phase.ranges))
            .collect();
        assert_eq!(
            phases,
            [
                (0, 500, vec![AddrRange::new(0, 40960)]),
                (600, 1200, vec![AddrRange::new(81920, 122_880)])
            ]
        );
    }

    #[test]
    fn what_is_touched_at_random_is_one_phase() {
        let missing = |nth: u64| {
            line(
                nth * 100,
                &format!("[[0,{}],[{},409600]]", nth * 4096, (nth + 1) * 4096),
            )
        };
        let text: String = (1..9).map(missing).collect();
        let truth = Truth::parse(&text).unwrap();
        assert_eq!(truth.phases.len(), 1);
        assert_eq!(truth.phases[0].ranges, [AddrRange::new(0, 409_600)]);
    }

    #[test]
    fn mistakes_name_their_line() {
        let good = line(0, "[]");
        assert_eq!(Truth::parse(&format!("{good}nonsense\n")).unwrap_err().0, 2);
        assert!(Truth::parse("").unwrap_err().1.contains("no whole line"));
        let other = good.replace(":7", ":8");
        assert!(
            Truth::parse(&format!("{good}{other}"))
                .unwrap_err()
                .1
                .contains("second process")
        );
    }
}
