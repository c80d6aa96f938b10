//! `thermo export`: converts a recording to other formats.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::bail;
use thermo_recording::{export, open};
use thermo_term::exit::Exit;

use crate::output_file;

/// Formats of other tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// The compressed JSON that `damo record` writes and `damo report` reads
    DamoJson,
    /// The same JSON, not compressed; damo reads it only if file(1) calls it "JSON data"
    DamoJsonPlain,
    /// Comma-separated values of one table
    Csv,
    /// Apache Parquet of one table
    Parquet,
}

/// Tables of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Table {
    /// A row for each region of each snapshot
    Regions,
    /// A row for each idle age, unknown reason and re-access of each snapshot and target
    Ages,
}

/// Convert a recording to a format of other tools.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo export thermo.arrow --format damo-json -o damon.data
  thermo export thermo.arrow --format csv --table ages | head")]
pub struct Export {
    /// The recording
    #[arg(default_value = "thermo.arrow")]
    recording: PathBuf,

    /// Format to write
    #[arg(long, short)]
    format: Format,

    /// Table to write, for CSV and Parquet
    #[arg(long, default_value = "regions")]
    table: Table,

    /// File to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Export {
    /// Writes the export. After an error no file is left.
    pub fn run(self) -> anyhow::Result<Exit> {
        let is_damo_json = matches!(self.format, Format::DamoJson | Format::DamoJsonPlain);
        if is_damo_json && self.table != Table::Regions {
            bail!("damo's JSON holds regions only: export ages as csv or parquet");
        }
        match &self.output {
            None => self.write_to(&mut io::stdout())?,
            Some(path) => output_file::write(path, |file| self.write_to(file))?,
        }
        Ok(Exit::Done)
    }

    fn write_to(&self, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
        let mut out = BufWriter::new(out);
        let table = match self.table {
            Table::Regions => export::Table::Regions,
            Table::Ages => export::Table::Ages,
        };
        match self.format {
            Format::DamoJson => export::damo_json(&self.recording, &mut out, true)?,
            Format::DamoJsonPlain => export::damo_json(&self.recording, &mut out, false)?,
            Format::Csv => export::csv(&mut open(&self.recording)?, table, &mut out)?,
            Format::Parquet => export::parquet(&mut open(&self.recording)?, table, &mut out)?,
        }
        out.flush()?;
        Ok(())
    }
}
