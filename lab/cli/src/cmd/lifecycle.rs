//! `thermo-lab lifecycle`: applications switched among in little memory, with and without hints.

use std::path::PathBuf;

use thermo_experiments::lifecycle::{self, Conditions, Plan};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};

use crate::{programs, stop};

/// Which experiment, and how much of it.
#[derive(Debug, clap::Args)]
pub struct Lifecycle {
    /// The experiment; workloads/experiments/lifecycle.toml when not given
    file: Option<PathBuf>,

    /// Repeats, other than the experiment's own number
    #[arg(long, value_name = "N")]
    repeats: Option<usize>,

    /// Switches a run, other than the experiment's own number
    #[arg(long, value_name = "N")]
    switches: Option<usize>,

    /// The folder the runs are kept in; the experiment's name when not given
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Lifecycle {
    /// Makes the runs that are not there yet, and prints the table.
    pub fn run(self) -> anyhow::Result<Exit> {
        let ready = PathBuf::from("workloads/experiments/lifecycle.toml");
        let plan = Plan::read(&self.file.unwrap_or(ready))?;
        let conditions = Conditions {
            results_dir: self.results.unwrap_or_else(|| PathBuf::from(&plan.name)),
            repeats: self.repeats,
            switches: self.switches,
            thermo: programs::find("thermo")?,
            stop: stop::at_signal()?,
        };
        let results = lifecycle::run(&plan, &conditions, &mut |told| eprintln!("{told}"))?;
        if self.json {
            output::json(&results.json())?;
        } else {
            output::text(&format!("{}\n\n{}", plan.about, results.table()))?;
        }
        Ok(match () {
            () if interrupt::asked() => Exit::Interrupted,
            () if !results.failures().is_empty() => Exit::Negative,
            () => Exit::Done,
        })
    }
}
