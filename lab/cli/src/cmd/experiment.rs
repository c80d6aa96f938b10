//! What the verbs that follow an experiment file have in common: their arguments, the run, the tables.

use std::path::PathBuf;

use anyhow::Context as _;
use thermo_experiments::{Experiment, Options, Progress, Results, run};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};

use crate::{programs, stop};

/// Which experiment to run, how much of it, and in which form to print it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The experiment; workloads/experiments/VERB.toml when not given
    file: Option<PathBuf>,

    /// Repeats, other than the experiment's own number
    #[arg(long, value_name = "N")]
    repeats: Option<usize>,

    /// Only this workload; may be given more than once
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,

    /// Only this configuration besides the one others are compared to; may be given more than once
    #[arg(long, value_name = "NAME")]
    configuration: Vec<String>,

    /// The folder the runs are kept in; the experiment's name when not given
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,

    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print comma-separated values
    #[arg(long)]
    csv: bool,

    /// Write the tables and pictures of every run to a page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Arguments {
    /// Runs the experiment given, else the one of `verb` in the project's folder of experiments.
    pub fn run(self, verb: &str) -> anyhow::Result<Exit> {
        let ready = || PathBuf::from(format!("workloads/experiments/{verb}.toml"));
        let experiment = Experiment::read(&self.file.clone().unwrap_or_else(ready))?;
        let options = self.options(&experiment)?;
        let results = run(&experiment, &options, &mut tell)?;
        if let Some(path) = &self.html {
            std::fs::write(path, results.html())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.print(&results)?;
        if !self.json && !self.csv {
            output::text(&thermo_experiments::ethp_sentences(&results))?;
        }
        Ok(match () {
            () if interrupt::asked() => Exit::Interrupted,
            () if !results.failures().is_empty() => Exit::Negative,
            () => Exit::Done,
        })
    }

    /// Whether JSON was asked for.
    pub const fn wants_json(&self) -> bool {
        self.json
    }

    fn options(&self, experiment: &Experiment) -> anyhow::Result<Options> {
        let results_dir = self
            .results
            .clone()
            .unwrap_or_else(|| PathBuf::from(&experiment.name));
        Ok(Options {
            results_dir,
            repeats: self.repeats,
            only_workloads: self.workload.clone(),
            only_configurations: self.configuration.clone(),
            thermo: programs::find("thermo")?,
            lab: programs::ourselves()?,
            stop: stop::at_signal()?,
        })
    }

    fn print(&self, results: &Results) -> anyhow::Result<()> {
        if self.json {
            output::json(&results.json())?;
        } else if self.csv {
            output::text(&results.csv())?;
        } else {
            output::text(&results.table())?;
        }
        Ok(())
    }
}

fn tell(progress: &Progress) {
    match progress {
        Progress::Planned { runs, there } => eprintln!("{runs} runs to make, {there} are there already"),
        Progress::SettingUp { workload } => eprintln!("setting up {workload}"),
        Progress::Begin {
            nr,
            workload,
            configuration,
            repeat,
        } => {
            eprintln!("run {nr}: {workload} with {configuration}, round {}", repeat + 1);
        }
        Progress::End { run, seconds } => match &run.failure {
            Some(failure) => eprintln!("  failed after {seconds:.0} s: {failure}"),
            None => eprintln!("  done in {seconds:.0} s"),
        },
        Progress::Stopped => eprintln!("stopped; start it again to go on from here"),
    }
}
