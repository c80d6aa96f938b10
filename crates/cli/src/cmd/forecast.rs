//! `thermo forecast`: what schemes would save and cost, from a recording.

use std::path::{Path, PathBuf};

use anyhow::bail;
use thermo_forecast::{Assumptions, Replay, SchemeFile};
use thermo_recording::model::Metadata;
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::{Nanos, Permille};

use super::report;
use crate::{output_file, scheme_file};

/// Forecast what schemes would save and cost, from a recording made without schemes.
///
/// Replays the recording through the engine that would act: pattern, filters, quotas, priorities and
/// watermarks. Several scheme files are compared side by side. Nothing is paged out.
///
/// Exit code 1: the recording is truncated, or it is too short for one of several scheme files.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo forecast thermo.arrow --schemes schemes/proactive_reclaim.damos
  thermo forecast thermo.arrow --schemes after-10s.damos after-1m.damos --html forecast.html")]
pub struct Forecast {
    /// A recording, or the JSON of `damo record`
    recording: PathBuf,

    /// Scheme files to compare: DAMOS lines, damo's JSON, or TOML
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    schemes: Vec<PathBuf>,

    /// Size of compressed memory (zram, zswap), as a share of its size; without it, 25 % to 75 % is assumed
    #[arg(long, value_name = "SHARE")]
    compressed_size: Option<Permille>,

    /// CPU time of paging out 1 MiB, which quotas of CPU time limit bytes by
    #[arg(long, value_name = "TIME", default_value = "3.1ms")]
    pageout_cost: Nanos,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Also draw memory that leaves and refaults over time, into an HTML page that needs no other file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Forecast {
    /// Replays the recording and prints the forecast.
    pub fn run(self) -> anyhow::Result<Exit> {
        let files: Vec<SchemeFile> = self
            .schemes
            .iter()
            .map(|path| read(path))
            .collect::<Result<_, _>>()?;
        let assumptions = Assumptions {
            compressed: self.compressed_size,
            pageout_cost_per_mib: self.pageout_cost,
        };
        let replay = |metadata: &Metadata| Ok(Replay::new(metadata, files, assumptions)?);
        let (forecast, exit) = report::read(&self.recording, replay)?;
        self.refuse_without_answer(&forecast)?;
        if let Some(path) = &self.html {
            output_file::write_bytes(path, forecast.html().as_bytes())?;
        }
        if self.json {
            output::json(&serde_json::to_value(&forecast)?)?;
        } else {
            output::text(&forecast.text())?;
        }
        let is_partial = forecast.files.iter().any(|file| file.cannot_tell.is_some());
        Ok(if is_partial { Exit::Negative } else { exit })
    }

    /// One sentence if the recording answers for no file.
    fn refuse_without_answer(&self, forecast: &thermo_forecast::Forecast) -> anyhow::Result<()> {
        let mut reasons = forecast
            .files
            .iter()
            .filter_map(|file| file.cannot_tell.as_deref());
        match (forecast.has_no_answer(), reasons.next()) {
            (true, Some(reason)) => bail!("{}: {reason}", self.recording.display()),
            _ => Ok(()),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<SchemeFile> {
    Ok(SchemeFile {
        name: path.display().to_string(),
        schemes: scheme_file::read(path)?,
    })
}
