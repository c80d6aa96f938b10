//! The ground truth: which memory was accessed in each span of time, and its file of JSON lines.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use thermo_units::{AddrRange, Nanos};

/// The pages accessed in one span of time. Each span starts where the previous one ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truth {
    /// Start of the span (`CLOCK_MONOTONIC`).
    pub start: Nanos,
    /// End of the span (`CLOCK_MONOTONIC`).
    pub end: Nanos,
    /// The process that accessed the memory.
    pub pid: u32,
    /// The accessed pages as byte ranges, ascending and disjoint.
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
    /// Writes the record as one line: `{"start_ns","end_ns","pid","ranges":[[start,end],...]}` and a newline.
    ///
    /// # Errors
    /// When `out` fails.
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

    /// Parses a line of the file. Empty ranges are dropped.
    ///
    /// # Errors
    /// When the line is no truth record.
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

/// Writes truth records to a file in a separate thread, so that accesses do not wait for the disk.
pub struct TruthWriter {
    lines: Sender<Truth>,
    thread: JoinHandle<io::Result<()>>,
}

impl TruthWriter {
    /// Creates the file, or truncates an existing one.
    ///
    /// # Errors
    /// When the file cannot be created or the thread cannot be started.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        let (lines, received) = mpsc::channel::<Truth>();
        let thread = std::thread::Builder::new()
            .name("truth".to_owned())
            .spawn(move || {
                for truth in received {
                    truth.write_to(&mut out)?;
                    // Flush whole lines, so that no reader finds half a line, even after the process was
                    // killed.
                    out.flush()?;
                }
                Ok(())
            })?;
        Ok(Self { lines, thread })
    }

    /// Queues one record. After a write error nothing more is written; [`Self::finish`] returns the error.
    pub fn write(&self, truth: Truth) {
        // Sending fails only after a write error, which `finish` returns.
        let _ = self.lines.send(truth);
    }

    /// Waits until all records are written.
    ///
    /// # Errors
    /// The first write error.
    pub fn finish(self) -> io::Result<()> {
        drop(self.lines);
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that writes the truth file panicked")))
    }
}
