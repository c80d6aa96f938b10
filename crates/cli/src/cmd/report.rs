//! `thermo report`: reports of a recording.

mod formats;
mod source;

use std::io::{self, BufWriter, Write};

use anyhow::bail;
use thermo_engine::access_tables::AGE_EDGES_S;
use thermo_report::footprint::FootprintAccumulator;
use thermo_report::heatmap::HeatmapAccumulator;
use thermo_report::idle::IdleAccumulator;
use thermo_report::info::InfoAccumulator;
use thermo_report::reaccess::ReaccessAccumulator;
use thermo_report::regions::{Format, RegionsWriter, Snapshots};
use thermo_report::schemes::SchemesAccumulator;
use thermo_report::summary::SummaryAccumulator;
use thermo_report::wss::WssAccumulator;
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::Nanos;

use crate::terminal;
use formats::{ImageFiles, OutputFormat};
use source::Source;
pub(super) use source::read;

/// Buffer for tables of hundreds of thousands of lines.
const OUTPUT_BUFFER: usize = 64 << 10;

/// Report the results of a recording.
///
/// Exit code 1: the recording is truncated and the report covers its beginning, or the recording has no data
/// for the report. A recording that is still being written is not truncated. With `--since`, the report is of
/// the history that `thermo agent` keeps.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo report heatmap thermo.arrow --html heatmap.html
  thermo report wss thermo.arrow --json
  thermo report reaccess --since -2h --target nginx.service")]
pub struct Report {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// Hot, warm and cold memory, heatmap, working set and cost: a summary
    #[command(after_help = "Examples:
  thermo report summary thermo.arrow
  thermo report summary thermo.arrow --json")]
    Summary {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Every region of every snapshot
    #[command(after_help = "Examples:
  thermo report regions thermo.arrow --last
  thermo report regions thermo.arrow --csv | head")]
    Regions {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        format: OutputFormat,
        /// Only the last snapshot that has a target
        #[arg(long)]
        last: bool,
    },
    /// Heatmap: access frequency by time and address
    #[command(after_help = "Examples:
  thermo report heatmap thermo.arrow
  thermo report heatmap thermo.arrow --html heatmap.html --png heatmap.png")]
    Heatmap {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        images: ImageFiles,
    },
    /// Working set: memory accessed within windows of 1 s to 1 day
    #[command(after_help = "Examples:
  thermo report wss thermo.arrow
  thermo report wss thermo.arrow --window 1m --json")]
    Wss {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        images: ImageFiles,
        /// Only this window: 1s, 2s, 5s, 10s, 30s, 1m, 2m, 5m, 10m, 30m, 1h, 2h, 6h or 1d
        #[arg(long, value_name = "TIME")]
        window: Option<Nanos>,
    },
    /// Idle ages: how much memory was not accessed for how long
    #[command(after_help = "Examples:
  thermo report idle thermo.arrow
  thermo report idle thermo.arrow --csv")]
    Idle {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Re-accesses: how much idle memory is accessed again, per minute
    #[command(after_help = "Examples:
  thermo report reaccess thermo.arrow
  thermo report reaccess thermo.arrow --json")]
    Reaccess {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Schemes: bytes tried and applied, and the reasons for skipped bytes
    #[command(after_help = "Examples:
  thermo report schemes thermo.arrow
  thermo report schemes thermo.arrow --json")]
    Schemes {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Memory sizes of the targets: virtual, resident, swapped
    #[command(after_help = "Examples:
  thermo report footprint thermo.arrow
  thermo report footprint thermo.arrow --csv")]
    Footprint {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Settings, host, length, cost and warnings of the recording
    #[command(after_help = "Examples:
  thermo report info thermo.arrow
  thermo report info thermo.arrow --json")]
    Info {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        format: OutputFormat,
    },
}

impl Report {
    /// Prints or draws the report.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.kind {
            Kind::Summary { source, format } => source.print(format, SummaryAccumulator::new),
            Kind::Regions { source, format, last } => regions(
                &source,
                format,
                if last { Snapshots::Last } else { Snapshots::All },
            ),
            Kind::Heatmap {
                source,
                format,
                images,
            } => {
                let (heatmap, exit) = source.sum_up(HeatmapAccumulator::new)?;
                images.draw_or_print(&heatmap, format)?;
                Ok(exit)
            }
            Kind::Wss {
                source,
                format,
                images,
                window,
            } => wss(&source, format, &images, window),
            Kind::Reaccess { source, format } => reaccess(&source, format),
            Kind::Idle { source, format } => source.print(format, |_| IdleAccumulator::default()),
            Kind::Schemes { source, format } => source.print(format, |_| SchemesAccumulator::default()),
            Kind::Footprint { source, format } => source.print(format, |_| FootprintAccumulator::default()),
            Kind::Info { source, format } => source.print(format, InfoAccumulator::new),
        }
    }
}

fn wss(
    source: &Source,
    format: OutputFormat,
    images: &ImageFiles,
    window: Option<Nanos>,
) -> anyhow::Result<Exit> {
    let window = window.map(window_seconds).transpose()?;
    let (mut wss, exit) = source.sum_up(|_| WssAccumulator::default())?;
    if let Some(seconds) = window {
        wss = match wss.only(seconds) {
            Ok(wss) => wss,
            Err(why) => return Ok(no_data(source, &why)),
        };
    }
    images.draw_or_print(&wss, format)?;
    Ok(exit)
}

fn reaccess(source: &Source, format: OutputFormat) -> anyhow::Result<Exit> {
    let (reaccess, exit) = source.sum_up(|_| ReaccessAccumulator::default())?;
    if let Some(why) = reaccess.unavailable_reason() {
        return Ok(no_data(source, &why));
    }
    format.print(&reaccess)?;
    Ok(exit)
}

/// Converts a window to seconds. Recordings have only the windows of the age edges.
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

/// Prints why the recording has no data for the report.
fn no_data(source: &Source, why: &str) -> Exit {
    thermo_kernel::message!("thermo: {}: {why}", source.name());
    Exit::Negative
}

fn regions(source: &Source, format: OutputFormat, snapshots: Snapshots) -> anyhow::Result<Exit> {
    let format = match format {
        OutputFormat { json: true, .. } => Format::Json,
        OutputFormat { csv: true, .. } => Format::Csv,
        _ => Format::Text(terminal::stdout_style()),
    };
    let mut input = source.open()?;
    let mut writer = RegionsWriter::new(
        input.metadata(),
        BufWriter::with_capacity(OUTPUT_BUFFER, io::stdout().lock()),
        snapshots,
        format,
    );
    for record in input.by_ref() {
        writer.add(&record?).map_err(output::write_error)?;
    }
    let flushed = writer.finish().and_then(|mut out| out.flush());
    flushed.map_err(output::write_error)?;
    input.finish()
}
