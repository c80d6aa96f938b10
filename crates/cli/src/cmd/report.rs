//! `thermo report`: what a recording says.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;
use thermo_engine::access_tables::AGE_EDGES_S;
use thermo_recording::{Recording, open};
use thermo_report::footprint::{FootprintAccumulator, Footprints};
use thermo_report::heatmap::{Heatmap, HeatmapAccumulator};
use thermo_report::idle::{Idle, IdleAccumulator};
use thermo_report::info::{Info, InfoAccumulator};
use thermo_report::reaccess::{Reaccess, ReaccessAccumulator};
use thermo_report::regions::{Format, RegionsWriter, Which};
use thermo_report::schemes::{Schemes, SchemesAccumulator};
use thermo_report::summary::{Summary, SummaryAccumulator};
use thermo_report::wss::{Wss, WssAccumulator};
use thermo_report::{Accumulator, PictureError, Style};
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::Nanos;

use crate::terminal;

/// Tables of hundreds of thousands of lines are written in pieces of so many bytes.
const OUTPUT_AT_ONCE: usize = 64 << 10;

/// Show what a recording says.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo report heatmap thermo.arrow --html heatmap.html
  thermo report wss thermo.arrow --json")]
pub struct Report {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// Hot, warm and cold memory, heatmap, working set and cost in short
    #[command(after_help = "Examples:
  thermo report summary thermo.arrow
  thermo report summary thermo.arrow --json")]
    Summary {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        face: Face,
    },
    /// Every region of every snapshot
    #[command(after_help = "Examples:
  thermo report regions thermo.arrow --last
  thermo report regions thermo.arrow --csv | head")]
    Regions {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        face: Face,
        /// Only the last snapshot in which a target lived
        #[arg(long)]
        last: bool,
    },
    /// Time by address, by how often memory was accessed
    #[command(after_help = "Examples:
  thermo report heatmap thermo.arrow
  thermo report heatmap thermo.arrow --html heatmap.html --png heatmap.png")]
    Heatmap {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        face: Face,
        #[command(flatten)]
        pictures: Pictures,
    },
    /// How much memory was accessed within windows of 1 s to a day
    #[command(after_help = "Examples:
  thermo report wss thermo.arrow
  thermo report wss thermo.arrow --window 1m --json")]
    Wss {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        face: Face,
        #[command(flatten)]
        pictures: Pictures,
        /// Only this window: 1s, 2s, 5s, 10s, 30s, 1m, 2m, 5m, 10m, 30m, 1h, 2h, 6h or 1d
        #[arg(long, value_name = "TIME")]
        window: Option<Nanos>,
    },
    /// For how long memory has not been accessed
    #[command(after_help = "Examples:
  thermo report idle thermo.arrow
  thermo report idle thermo.arrow --csv")]
    Idle {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        face: Face,
    },
    /// How much memory is accessed again after it was idle, per minute
    #[command(after_help = "Examples:
  thermo report reaccess thermo.arrow
  thermo report reaccess thermo.arrow --json")]
    Reaccess {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        face: Face,
    },
    /// What schemes tried and did, and why they left memory alone
    #[command(after_help = "Examples:
  thermo report schemes thermo.arrow
  thermo report schemes thermo.arrow --json")]
    Schemes {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        face: Face,
    },
    /// How much memory the targets had
    #[command(after_help = "Examples:
  thermo report footprint thermo.arrow
  thermo report footprint thermo.arrow --csv")]
    Footprint {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        face: Face,
    },
    /// Settings, host, length and cost of the recording
    #[command(after_help = "Examples:
  thermo report info thermo.arrow
  thermo report info thermo.arrow --json")]
    Info {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        face: Face,
    },
}

#[derive(Debug, Clone, clap::Args)]
struct Source {
    /// A recording, or the JSON of `damo record`
    #[arg(default_value = "thermo.arrow")]
    recording: PathBuf,
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Face {
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print comma-separated values
    #[arg(long)]
    csv: bool,
}

/// Files a report is drawn into, instead of being printed.
#[derive(Debug, Clone, clap::Args)]
struct Pictures {
    /// Draw it into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Draw it into a PNG file
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,

    /// Make a page of it that needs no other file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Report {
    /// Prints the report, or draws it.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.kind {
            Kind::Summary { source, face } => {
                face.print(&source.sum_up(|recording| SummaryAccumulator::new(&recording.metadata))?)?;
            }
            Kind::Regions { source, face, last } => {
                regions(&source, face, if last { Which::Last } else { Which::All })?;
            }
            Kind::Heatmap {
                source,
                face,
                pictures,
            } => {
                let map = source.sum_up(|_| HeatmapAccumulator::default())?;
                pictures.draw(&map)?.unless_drawn(|| face.print(&map))?;
            }
            Kind::Wss {
                source,
                face,
                pictures,
                window,
            } => return wss(&source, face, &pictures, window),
            Kind::Reaccess { source, face } => {
                let reaccess = source.sum_up(|_| ReaccessAccumulator::default())?;
                if let Some(refusal) = reaccess.refusal() {
                    return Ok(refused(&source, refusal));
                }
                face.print(&reaccess)?;
            }
            Kind::Idle { source, face } => face.print(&source.sum_up(|_| IdleAccumulator::default())?)?,
            Kind::Schemes { source, face } => {
                face.print(&source.sum_up(|_| SchemesAccumulator::default())?)?;
            }
            Kind::Footprint { source, face } => {
                face.print(&source.sum_up(|_| FootprintAccumulator::default())?)?;
            }
            Kind::Info { source, face } => {
                face.print(&source.sum_up(|recording| InfoAccumulator::new(&recording.metadata))?)?;
            }
        }
        Ok(Exit::Done)
    }
}

impl Source {
    /// Feeds every record to an accumulator, and says so when the recording was cut off.
    fn sum_up<A: Accumulator>(&self, begin: impl FnOnce(&Recording) -> A) -> anyhow::Result<A::Report> {
        let mut recording = open(&self.recording)?;
        let mut accumulator = begin(&recording);
        for record in recording.by_ref() {
            accumulator.add(&record?);
        }
        tell_if_cut_off(&recording);
        Ok(accumulator.finish())
    }
}

fn wss(source: &Source, face: Face, pictures: &Pictures, window: Option<Nanos>) -> anyhow::Result<Exit> {
    let window = window.map(window_seconds).transpose()?;
    let mut wss = source.sum_up(|_| WssAccumulator::default())?;
    if let Some(seconds) = window {
        wss = match wss.only(seconds) {
            Ok(wss) => wss,
            Err(why) => return Ok(refused(source, &why)),
        };
    }
    pictures.draw(&wss)?.unless_drawn(|| face.print(&wss))?;
    Ok(Exit::Done)
}

/// The seconds of a window that recordings can have.
fn window_seconds(window: Nanos) -> anyhow::Result<u64> {
    let edge = AGE_EDGES_S
        .iter()
        .find(|edge| **edge > 0 && Nanos::secs(**edge) == window);
    match edge {
        Some(edge) => Ok(*edge),
        None => bail!(
            "there is no window of {window}: give one of {}",
            thermo_report::ages::windows_text()
        ),
    }
}

/// Says on standard error why the recording does not have what was asked for.
fn refused(source: &Source, why: &str) -> Exit {
    eprintln!("thermo: {}: {why}", source.recording.display());
    Exit::Negative
}

fn regions(source: &Source, face: Face, which: Which) -> anyhow::Result<()> {
    let format = match face {
        Face { json: true, .. } => Format::Json,
        Face { csv: true, .. } => Format::Csv,
        _ => Format::Text(terminal::style()),
    };
    let mut recording = open(&source.recording)?;
    let mut writer = RegionsWriter::new(
        BufWriter::with_capacity(OUTPUT_AT_ONCE, io::stdout().lock()),
        which,
        format,
    );
    for record in recording.by_ref() {
        writer.add(&record?).map_err(output::failed)?;
    }
    let flushed = writer.finish().and_then(|mut out| out.flush());
    flushed.map_err(output::failed)?;
    tell_if_cut_off(&recording);
    Ok(())
}

fn tell_if_cut_off(recording: &Recording) {
    if let Some(truncated) = recording.truncated() {
        eprintln!("thermo: {}: {truncated}", recording.path().display());
    }
}

/// A report with the faces that all of them have.
trait Printable {
    fn text(&self, style: &Style) -> String;
    fn csv(&self) -> String;
    fn json(&self) -> serde_json::Result<Value>;
}

/// A report that can be drawn.
trait Drawable {
    fn svg(&self) -> String;
    fn png(&self) -> Result<Vec<u8>, PictureError>;
    fn html(&self) -> String;
}

macro_rules! printable {
    ($($report:ty),+) => {$(
        impl Printable for $report {
            fn text(&self, style: &Style) -> String {
                self.text(style)
            }
            fn csv(&self) -> String {
                self.csv()
            }
            fn json(&self) -> serde_json::Result<Value> {
                serde_json::to_value(self)
            }
        }
    )+};
}

macro_rules! drawable {
    ($($report:ty),+) => {$(
        impl Drawable for $report {
            fn svg(&self) -> String {
                self.svg()
            }
            fn png(&self) -> Result<Vec<u8>, PictureError> {
                self.png()
            }
            fn html(&self) -> String {
                self.html()
            }
        }
    )+};
}

printable!(Heatmap, Wss, Idle, Reaccess, Schemes, Footprints, Info, Summary);
drawable!(Heatmap, Wss);

impl Face {
    fn print(self, report: &impl Printable) -> anyhow::Result<()> {
        if self.json {
            output::json(&report.json()?)?;
        } else if self.csv {
            output::text(&report.csv())?;
        } else {
            output::text(&report.text(&terminal::style()))?;
        }
        Ok(())
    }
}

/// Whether something was drawn, so that it need not be printed.
struct Drawn(bool);

impl Drawn {
    fn unless_drawn(&self, print: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        if self.0 { Ok(()) } else { print() }
    }
}

impl Pictures {
    fn draw(&self, report: &impl Drawable) -> anyhow::Result<Drawn> {
        if let Some(path) = &self.svg {
            write_file(path, report.svg().as_bytes())?;
        }
        if let Some(path) = &self.png {
            write_file(path, &report.png()?)?;
        }
        if let Some(path) = &self.html {
            write_file(path, report.html().as_bytes())?;
        }
        Ok(Drawn(
            self.svg.is_some() || self.png.is_some() || self.html.is_some(),
        ))
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
