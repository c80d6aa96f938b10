//! All regions of all snapshots. Regions are written while they are read, so memory use does not depend on
//! the length of the recording.
//!
//! With [`Snapshots::Last`], only the last snapshot with data is kept, and is written at the end.

mod text;

use std::io::{self, Write};

use serde::Serialize;
use thermo_recording::model::{Metadata, Record, Region, Snapshot, Target, target_name};
use thermo_units::{Bytes, Nanos};

use crate::confidence::has_data;
use crate::layout::short_name;
use crate::style::Style;
use crate::{Layout, SCHEMA};
use text::LineFormatter;

/// The snapshots to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Snapshots {
    /// All snapshots with data.
    All,
    /// The last snapshot with data.
    Last,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A table for each target.
    Text(Style),
    /// One JSON object.
    Json,
    /// One row for each region.
    Csv,
}

/// Writes regions while their records are read.
pub struct RegionsWriter<W: Write> {
    out: W,
    snapshots: Snapshots,
    format: Format,
    imported: bool,
    layout: Layout,
    lines: Option<LineFormatter>,
    last: Option<Snapshot>,
    start_ns: Option<u64>,
    written: u64,
    /// Snapshots without data.
    empty: u64,
}

/// A snapshot as JSON.
#[derive(Serialize)]
struct SnapshotJson {
    time_ns: u64,
    targets: Vec<TargetJson>,
}

#[derive(Serialize)]
struct TargetJson {
    pid: Option<u32>,
    regions: Vec<RegionJson>,
}

#[derive(Serialize)]
struct RegionJson {
    start: u64,
    end: u64,
    nr_accesses: u32,
    max_nr_accesses: u32,
    age_ns: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unknown: bool,
}

impl<W: Write> RegionsWriter<W> {
    /// A writer to `out` for the recording described by `metadata`. Nothing is written before the first
    /// snapshot.
    pub fn new(metadata: &Metadata, out: W, snapshots: Snapshots, format: Format) -> Self {
        Self {
            out,
            snapshots,
            format,
            imported: metadata.imported,
            layout: Layout::default(),
            lines: None,
            last: None,
            start_ns: None,
            written: 0,
            empty: 0,
        }
    }

    /// Adds the next record.
    ///
    /// # Errors
    /// Any error of writing to `out`.
    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        self.layout.add(record);
        match record {
            Record::Snapshot(snapshot) if has_data(snapshot) => {
                self.start_ns.get_or_insert(snapshot.start_ns);
                match self.snapshots {
                    Snapshots::All => self.write(snapshot),
                    Snapshots::Last => {
                        self.last = Some(snapshot.clone());
                        Ok(())
                    }
                }
            }
            Record::Snapshot(_) => {
                self.empty += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes the rest and returns `out`.
    ///
    /// # Errors
    /// Any error of writing to `out`.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(last) = self.last.take() {
            self.write(&last)?;
        }
        if self.written == 0 {
            self.begin()?;
        }
        match self.format {
            Format::Json => writeln!(self.out, "]}}")?,
            Format::Text(_) if self.written == 0 => writeln!(self.out, "{}", crate::no_data(self.empty))?,
            Format::Text(_) | Format::Csv => {}
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn begin(&mut self) -> io::Result<()> {
        match self.format {
            Format::Json => write!(self.out, "{{\"schema\":{SCHEMA},\"snapshots\":["),
            Format::Csv => writeln!(
                self.out,
                "time_ns,pid,start,end,nr_accesses,max_nr_accesses,age_ns,unknown,mapping"
            ),
            Format::Text(_) => Ok(()),
        }
    }

    fn write(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        if self.written == 0 {
            self.begin()?;
        }
        let first = self.written == 0;
        self.written += 1;
        match self.format {
            Format::Json => {
                if !first {
                    self.out.write_all(b",")?;
                }
                serde_json::to_writer(&mut self.out, &snapshot_json(snapshot)).map_err(io::Error::from)
            }
            Format::Csv => self.csv(snapshot),
            Format::Text(style) => self.text(snapshot, style),
        }
    }

    fn csv(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let mut rows = csv::Writer::from_writer(&mut self.out);
        for target in &snapshot.targets {
            for region in &target.regions {
                rows.write_record([
                    snapshot.time_ns.to_string(),
                    target.pid.map(|pid| pid.to_string()).unwrap_or_default(),
                    region.start.to_string(),
                    region.end.to_string(),
                    region.nr_accesses.to_string(),
                    snapshot.max_nr_accesses.to_string(),
                    region
                        .age_ns(snapshot.aggr_ns)
                        .map(|ns| ns.to_string())
                        .unwrap_or_default(),
                    region.unknown.to_string(),
                    self.layout
                        .mapping_name(target.id, region.start, region.end)
                        .unwrap_or_default()
                        .to_owned(),
                ])?;
            }
        }
        rows.flush()
    }

    fn text(&mut self, snapshot: &Snapshot, style: Style) -> io::Result<()> {
        let since = snapshot
            .time_ns
            .saturating_sub(self.start_ns.unwrap_or(snapshot.start_ns));
        if self.written > 1 {
            writeln!(self.out)?;
        }
        writeln!(
            self.out,
            "snapshot at {} ({} access checks per region)",
            Nanos(since),
            snapshot.max_nr_accesses
        )?;
        for target in snapshot
            .targets
            .iter()
            .filter(|target| !target.regions.is_empty())
        {
            self.target_text(target, snapshot, style)?;
        }
        Ok(())
    }

    fn target_text(&mut self, target: &Target, snapshot: &Snapshot, style: Style) -> io::Result<()> {
        writeln!(
            self.out,
            "{}, {} regions, {} unknown",
            target_name(self.imported, target.id, target.pid),
            target.regions.len(),
            Bytes(unknown_bytes(target))
        )?;
        let lines = self.lines.get_or_insert_with(|| LineFormatter::new(style));
        self.out.write_all(lines.headings().as_bytes())?;
        for region in &target.regions {
            let name = self.layout.mapping_name(target.id, region.start, region.end);
            let line = lines.line(region, snapshot, name.map_or("", short_name));
            self.out.write_all(line)?;
        }
        Ok(())
    }
}

/// Bytes of regions whose accesses are unknown.
fn unknown_bytes(target: &Target) -> u64 {
    let unknown = target.regions.iter().filter(|region| region.unknown);
    unknown
        .map(|region| region.end.saturating_sub(region.start))
        .sum()
}

fn snapshot_json(snapshot: &Snapshot) -> SnapshotJson {
    let region = |region: &Region| RegionJson {
        start: region.start,
        end: region.end,
        nr_accesses: region.nr_accesses,
        max_nr_accesses: snapshot.max_nr_accesses,
        age_ns: region.age_ns(snapshot.aggr_ns),
        unknown: region.unknown,
    };
    let target = |target: &Target| TargetJson {
        pid: target.pid,
        regions: target.regions.iter().map(region).collect(),
    };
    SnapshotJson {
        time_ns: snapshot.time_ns,
        targets: snapshot.targets.iter().map(target).collect(),
    }
}
