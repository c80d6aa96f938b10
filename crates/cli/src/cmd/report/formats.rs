//! Output of reports: text, JSON and CSV on standard output, and images in files.

use std::path::PathBuf;

use serde_json::Value;
use thermo_report::footprint::Footprints;
use thermo_report::heatmap::Heatmap;
use thermo_report::idle::Idle;
use thermo_report::info::Info;
use thermo_report::reaccess::Reaccess;
use thermo_report::schemes::Schemes;
use thermo_report::summary::Summary;
use thermo_report::wss::Wss;
use thermo_report::{PictureError, Style};
use thermo_term::output;

use crate::{output_file, terminal};

/// The format of the printed report.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct OutputFormat {
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,

    /// Print comma-separated values
    #[arg(long)]
    pub(super) csv: bool,
}

/// Files to draw a report into. With at least one of them, nothing is printed.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ImageFiles {
    /// Draw the report into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Draw the report into a PNG file
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,

    /// Draw the report into an HTML page that needs no other file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Formats that every report has.
pub(super) trait Printable {
    fn text(&self, style: &Style) -> String;
    fn csv(&self) -> String;
    fn json(&self) -> serde_json::Result<Value>;
}

/// Image formats that some reports have.
pub(super) trait Drawable {
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

impl OutputFormat {
    pub(super) fn print(self, report: &impl Printable) -> anyhow::Result<()> {
        if self.json {
            output::json(&report.json()?)?;
        } else if self.csv {
            output::text(&report.csv())?;
        } else {
            output::text(&report.text(&terminal::stdout_style()))?;
        }
        Ok(())
    }
}

impl ImageFiles {
    /// Draws the report into every named file; prints it if none is named.
    pub(super) fn draw_or_print(
        &self,
        report: &(impl Drawable + Printable),
        format: OutputFormat,
    ) -> anyhow::Result<()> {
        let Self { svg, png, html } = self;
        if svg.is_none() && png.is_none() && html.is_none() {
            return format.print(report);
        }
        if let Some(path) = svg {
            output_file::write_bytes(path, report.svg().as_bytes())?;
        }
        if let Some(path) = png {
            output_file::write_bytes(path, &report.png()?)?;
        }
        if let Some(path) = html {
            output_file::write_bytes(path, report.html().as_bytes())?;
        }
        Ok(())
    }
}
