//! `thermo-lab monitor`: accuracy of monitoring, against the accesses that workloads log.

use std::path::{Path, PathBuf};

use anyhow::Error;
use thermo_experiments::monitor::evaluate;
use thermo_term::exit::Exit;
use thermo_term::output;

use super::experiment::Arguments;

/// Runs an experiment, or judges one recording.
#[derive(Debug, clap::Args)]
pub struct Monitor {
    #[command(flatten)]
    experiment: Arguments,

    /// Judge this recording instead of running an experiment
    #[arg(long, value_name = "RECORDING", requires = "truth", conflicts_with = "file")]
    judge: Option<PathBuf>,

    /// The log of accesses that `thermo-lab workload --truth` wrote
    #[arg(long, value_name = "FILE", requires = "judge")]
    truth: Option<PathBuf>,
}

impl Monitor {
    /// Runs the experiment, or judges the recording.
    pub fn run(self) -> anyhow::Result<Exit> {
        match (&self.judge, &self.truth) {
            (Some(recording), Some(truth)) => self.judge(recording, truth),
            _ => self.experiment.run("monitor"),
        }
    }

    fn judge(&self, recording: &Path, truth: &Path) -> anyhow::Result<Exit> {
        let evaluation = evaluate(recording, truth).map_err(Error::msg)?;
        if self.experiment.wants_json() {
            output::json(&serde_json::to_value(&evaluation)?)?;
        } else {
            let name = recording.file_stem().unwrap_or_default().to_string_lossy();
            output::text(evaluation.text(&name).trim_end())?;
        }
        Ok(Exit::Done)
    }
}
