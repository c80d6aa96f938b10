//! What was really touched, and its file: a line of JSON for each span of time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use thermo_units::{AddrRange, Nanos};

/// What was touched in one span. Spans follow one another without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truth {
    /// When the span began (`CLOCK_MONOTONIC`).
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
    /// The process that did it.
    pub pid: u32,
    /// The pages that were touched, as byte ranges: ascending, disjoint.
    pub ranges: Vec<AddrRange>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    start_ns: u64,
    end_ns: u64,
    pid: u32,
    ranges: Vec<(u64, u64)>,
}

impl Truth {
    /// The line in the file: `{"start_ns","end_ns","pid","ranges":[[start,end],…]}`, with its end of line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let ranges = self
            .ranges
            .iter()
            .map(|range| (range.start.0, range.end.0))
            .collect();
        let line = Line {
            start_ns: self.start.0,
            end_ns: self.end.0,
            pid: self.pid,
            ranges,
        };
        serde_json::to_writer(&mut *out, &line).map_err(io::Error::from)?;
        out.write_all(b"\n")
    }

    /// What a line of the file says; ranges of no bytes are left out.
    ///
    /// # Errors
    /// It is not such a line.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        let line: Line = serde_json::from_str(line)?;
        let ranges = line.ranges.into_iter().filter(|(start, end)| start < end);
        Ok(Self {
            start: Nanos(line.start_ns),
            end: Nanos(line.end_ns),
            pid: line.pid,
            ranges: ranges.map(|(start, end)| AddrRange::new(start, end)).collect(),
        })
    }
}

/// Writes truth to a file from a thread of its own, so that the accesses do not wait for the disk.
pub struct TruthWriter {
    lines: Sender<Truth>,
    thread: JoinHandle<io::Result<()>>,
}

impl TruthWriter {
    /// Begins a file; one that is there is emptied.
    ///
    /// # Errors
    /// When the file cannot be made, or the thread not started.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        let (lines, received) = mpsc::channel::<Truth>();
        let thread = std::thread::Builder::new()
            .name("truth".to_owned())
            .spawn(move || {
                for truth in received {
                    truth.write_to(&mut out)?;
                    // A whole line at a time: who reads along, or after a kill, finds no half one.
                    out.flush()?;
                }
                Ok(())
            })?;
        Ok(Self { lines, thread })
    }

    /// Hands over one span. After an error of the file nothing more is written; [`Self::finish`] tells it.
    pub fn write(&self, truth: Truth) {
        // The receiver is gone only after an error, which `finish` reports.
        let _ = self.lines.send(truth);
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// The first error of the file.
    pub fn finish(self) -> io::Result<()> {
        drop(self.lines);
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that wrote the truth panicked")))
    }
}
