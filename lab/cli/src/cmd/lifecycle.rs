//! `thermo-lab lifecycle`: switches between applications under a memory limit, with and without hints.

use std::path::PathBuf;

use thermo_experiments::lifecycle::{self, Options, Plan};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};

use crate::{experiment_file, programs, stop};

/// Selects the experiment, the runs to make and the output format.
#[derive(Debug, clap::Args)]
pub struct Lifecycle {
    /// Experiment file [default: workloads/experiments/lifecycle.toml]
    file: Option<PathBuf>,

    /// Number of repeats [default: as in the experiment file]
    #[arg(long, value_name = "N")]
    repeats: Option<usize>,

    /// Switches in each run [default: as in the experiment file]
    #[arg(long, value_name = "N")]
    switches: Option<usize>,

    /// Folder for the runs [default: the experiment's name]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Lifecycle {
    /// Makes the missing runs and prints the table.
    pub fn run(self) -> anyhow::Result<Exit> {
        let default_file = || experiment_file::default_for("lifecycle");
        let plan = Plan::read(&self.file.unwrap_or_else(default_file))?;
        let options = Options {
            results_dir: self.results.unwrap_or_else(|| PathBuf::from(&plan.name)),
            repeats: self.repeats,
            switches: self.switches,
            thermo: programs::find("thermo")?,
            stop: stop::on_signal()?,
        };
        let results = lifecycle::run(&plan, &options, &mut |message| eprintln!("{message}"))?;
        if self.json {
            output::json(&results.json())?;
        } else {
            output::text(&format!("{}\n\n{}", plan.about, results.table()))?;
        }
        Ok(match () {
            () if interrupt::requested() => Exit::Interrupted,
            () if !results.failures().is_empty() => Exit::Negative,
            () => Exit::Done,
        })
    }
}
