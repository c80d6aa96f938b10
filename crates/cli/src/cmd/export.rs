//! `thermo export`: a recording in other forms.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use thermo_recording::{export, open};
use thermo_term::exit::Exit;

/// What a recording is turned into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// What `damo record` writes and `damo report` reads: JSON, compressed
    DamoJson,
    /// The same, not compressed; damo itself reads it only where `file` calls it "JSON data"
    DamoJsonPlain,
    /// Comma-separated values of one table
    Csv,
    /// Apache Parquet of one table
    Parquet,
}

/// Which table, where a format holds one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Table {
    /// A row for each region of each snapshot
    Regions,
    /// A row for each idle age, unknown reason and re-access of each snapshot and target
    Ages,
}

/// Turn a recording into what other tools read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo export thermo.arrow --format damo-json -o damon.data
  thermo export thermo.arrow --format csv --table ages | head")]
pub struct Export {
    /// The recording
    #[arg(default_value = "thermo.arrow")]
    recording: PathBuf,

    /// Into what
    #[arg(long, short)]
    format: Format,

    /// Which table, for CSV and Parquet
    #[arg(long, default_value = "regions")]
    table: Table,

    /// Where to; standard output when not given
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Export {
    /// Writes the whole recording, or nothing that could be taken for it.
    pub fn run(self) -> anyhow::Result<Exit> {
        let holds_regions_only = matches!(self.format, Format::DamoJson | Format::DamoJsonPlain);
        if holds_regions_only && self.table != Table::Regions {
            bail!("damo's JSON holds regions only; export ages as csv or parquet");
        }
        match &self.output {
            None => self.write_to(&mut io::stdout())?,
            Some(path) => self.write_file(path)?,
        }
        Ok(Exit::Done)
    }

    /// Under another name first: half an export must not look like a whole one.
    fn write_file(&self, path: &Path) -> anyhow::Result<()> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".part");
        let unfinished = PathBuf::from(unfinished);
        let cannot_write = || format!("cannot write {}", path.display());
        let mut file = File::create(&unfinished).with_context(cannot_write)?;
        if let Err(error) = self.write_to(&mut file) {
            drop(std::fs::remove_file(&unfinished));
            return Err(error);
        }
        std::fs::rename(&unfinished, path).with_context(cannot_write)
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
