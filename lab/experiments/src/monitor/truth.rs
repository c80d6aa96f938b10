//! The accesses that a workload logged, grouped into phases.

use std::path::{Path, PathBuf};

use thermo_units::AddrRange;
use thermo_workload::Truth as Span;

use super::ranges::{similarity, union};

/// Minimum similarity of the spans of a phase. Random accesses differ a little from span to span.
const SAME_PHASE: f64 = 0.9;
/// Minimum number of spans in a phase. Shorter ones are transitions between two phases.
const MIN_SPANS: usize = 4;

/// The accesses of a workload over time, from its truth file.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// The process of the workload.
    pub pid: u32,
    /// The phases, ascending.
    pub phases: Vec<Phase>,
}

/// A span of time in which about the same bytes were accessed.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Start (`CLOCK_MONOTONIC`).
    pub start_ns: u64,
    /// End (`CLOCK_MONOTONIC`).
    pub end_ns: u64,
    /// The accessed ranges, ascending and disjoint.
    pub ranges: Vec<AddrRange>,
    spans: usize,
}

/// A truth file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TruthError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The file has an invalid line.
    #[error("{path}:{line}: {message}; `thermo-lab workload --truth` writes such files", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The error.
        message: String,
    },
}

impl Truth {
    /// Reads the file at `path`. A truncated last line is skipped.
    ///
    /// # Errors
    /// When the file cannot be read, has no complete line, or has an invalid one.
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
                return Err((
                    nth + 1,
                    "a second process: a truth file must be of one process".to_owned(),
                ));
            }
            pid = Some(span.pid);
            add(&mut phases, span);
        }
        phases.retain(|phase| phase.spans >= MIN_SPANS);
        let pid = pid.ok_or_else(|| (1, "there is no complete line".to_owned()))?;
        Ok(Self { pid, phases })
    }
}

/// Adds a span to the last phase, or starts a new phase.
fn add(phases: &mut Vec<Phase>, span: Span) {
    let ranges = union(span.ranges);
    match phases.last_mut() {
        Some(last) if similarity(&last.ranges, &ranges) >= SAME_PHASE => {
            last.end_ns = span.end.0;
            last.spans += 1;
            if last.ranges != ranges {
                last.ranges = union([std::mem::take(&mut last.ranges), ranges].concat());
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
    fn spans_form_phases_without_transitions() {
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
    fn random_accesses_form_one_phase() {
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
    fn errors_have_line_number() {
        let good = line(0, "[]");
        assert_eq!(Truth::parse(&format!("{good}nonsense\n")).unwrap_err().0, 2);
        assert!(Truth::parse("").unwrap_err().1.contains("no complete line"));
        let other = good.replace(":7", ":8");
        assert!(
            Truth::parse(&format!("{good}{other}"))
                .unwrap_err()
                .1
                .contains("second process")
        );
    }
}
