//! `thermo export`: a recording in other forms.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use thermo_record::{export, open};

use crate::exit::Exit;

/// What a recording is turned into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// What `damo record` writes and `damo report` reads: JSON, compressed
    DamoJson,
    /// The same, not compressed; damo itself reads it only where `file` calls it "JSON data"
    DamoJsonPlain,
    /// Comma-separated values, a row a region
    Csv,
    /// Apache Parquet, a row a region
    Parquet,
}

/// Turn a recording into what other tools read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo export thermo.arrow --format damo-json -o damon.data
  thermo export thermo.arrow --format csv | head")]
pub struct Export {
    /// The recording
    #[arg(default_value = "thermo.arrow")]
    recording: PathBuf,

    /// Into what
    #[arg(long, short)]
    format: Format,

    /// Where to; standard output when not given
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Export {
    /// Writes the whole recording, or nothing that could be taken for it.
    pub fn run(self) -> anyhow::Result<Exit> {
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
        match self.format {
            Format::DamoJson => export::damo_json(&self.recording, &mut out, true)?,
            Format::DamoJsonPlain => export::damo_json(&self.recording, &mut out, false)?,
            Format::Csv => export::csv(&mut open(&self.recording)?, &mut out)?,
            Format::Parquet => export::parquet(&mut open(&self.recording)?, &mut out)?,
        }
        out.flush()?;
        Ok(())
    }
}
