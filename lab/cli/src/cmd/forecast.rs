//! `thermo-lab forecast`: predictions of `thermo advise` beside what `thermo reclaim` does.

use std::path::PathBuf;

use anyhow::Context as _;
use thermo_experiments::forecast::{self, Options, Plan};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};
use thermo_units::Nanos;

use crate::{experiment_file, programs, stop};

/// Selects the experiment, the workloads, the times and the output format.
#[derive(Debug, clap::Args)]
pub struct Forecast {
    /// Experiment file [default: workloads/experiments/forecast.toml]
    file: Option<PathBuf>,

    /// Run only this workload; may be given more than once
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,

    /// Act with this minimum age; may be given more than once [default: as in the experiment file]
    #[arg(long, value_name = "TIME")]
    age: Vec<Nanos>,

    /// Number of runs with each age [default: as in the experiment file]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,

    /// How long each workload is watched [default: as in the experiment file]
    #[arg(long, value_name = "TIME")]
    watch: Option<Nanos>,

    /// Time that is not counted, in addition to the age [default: as in the experiment file]
    #[arg(long, value_name = "TIME")]
    settle: Option<Nanos>,

    /// Time that is counted [default: as in the experiment file]
    #[arg(long, value_name = "TIME")]
    each: Option<Nanos>,

    /// CPU budget of `thermo advise` and `thermo reclaim` [default: as in the experiment file]
    #[arg(long, value_name = "PERCENT")]
    cpu: Option<String>,

    /// Also run `thermo reclaim --auto` for this long on each workload
    #[arg(long, value_name = "TIME")]
    auto: Option<Nanos>,

    /// Folder for the runs [default: the experiment's name]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Also write a scatter plot of net savings (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Forecast {
    /// Makes the runs and prints the table.
    pub fn run(self) -> anyhow::Result<Exit> {
        let plan = self.plan()?;
        let options = Options {
            thermo: programs::find("thermo")?,
            results_dir: self.results.unwrap_or_else(|| PathBuf::from(&plan.name)),
            auto: self.auto,
            stop: stop::on_signal()?,
        };
        let results = forecast::run(&plan, &options, &mut |line| eprintln!("{line}"))?;
        if let Some(path) = &self.plot {
            std::fs::write(path, results.svg())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            output::json(&results.json())?;
        } else {
            output::text(&format!("{}\n\n{}", plan.about, results.text()))?;
        }
        Ok(match () {
            () if interrupt::requested() => Exit::Interrupted,
            () if !results.failures.is_empty() => Exit::Negative,
            () => Exit::Done,
        })
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let default_file = || experiment_file::default_for("forecast");
        let mut plan = Plan::read(&self.file.clone().unwrap_or_else(default_file))?;
        plan.select(&self.workload)?;
        if !self.age.is_empty() {
            plan.ages.clone_from(&self.age);
        }
        plan.rounds = self.rounds.unwrap_or(plan.rounds);
        plan.watch = self.watch.unwrap_or(plan.watch);
        plan.settle = self.settle.unwrap_or(plan.settle);
        plan.each = self.each.unwrap_or(plan.each);
        if let Some(cpu) = &self.cpu {
            plan.cpu.clone_from(cpu);
        }
        Ok(plan)
    }
}
