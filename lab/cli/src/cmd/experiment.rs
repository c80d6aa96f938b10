//! Arguments, run and output shared by all subcommands that run an experiment file.

use std::path::PathBuf;

use anyhow::Context as _;
use thermo_experiments::{Experiment, Options, Progress, Results, run};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};

use crate::{experiment_file, programs, stop};

/// Selects the experiment, the runs to make and the output format.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Experiment file [default: workloads/experiments/SUBCOMMAND.toml]
    file: Option<PathBuf>,

    /// Number of repeats [default: as in the experiment file]
    #[arg(long, value_name = "N")]
    repeats: Option<usize>,

    /// Run only this workload; may be given more than once
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,

    /// Run only this configuration and its baseline; may be given more than once
    #[arg(long, value_name = "NAME")]
    configuration: Vec<String>,

    /// Folder for the runs [default: the experiment's name]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,

    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print comma-separated values
    #[arg(long)]
    csv: bool,

    /// Also write an HTML page with the tables and plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Arguments {
    /// Runs the given experiment file, or the one of the subcommand.
    pub fn run(self, subcommand: &str) -> anyhow::Result<Exit> {
        let default_file = || experiment_file::default_for(subcommand);
        let experiment = Experiment::read(&self.file.clone().unwrap_or_else(default_file))?;
        let options = self.options(&experiment)?;
        let results = run(&experiment, &options, &mut print_progress)?;
        if let Some(path) = &self.html {
            std::fs::write(path, results.html())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.print(&results)?;
        if !self.json && !self.csv {
            output::text(&thermo_experiments::huge_page_summary(&results))?;
        }
        Ok(match () {
            () if interrupt::requested() => Exit::Interrupted,
            () if !results.failures().is_empty() => Exit::Negative,
            () => Exit::Done,
        })
    }

    /// True with `--json`.
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
            lab: programs::current_exe()?,
            stop: stop::on_signal()?,
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

fn print_progress(progress: &Progress) {
    match progress {
        Progress::Planned { runs, finished } => eprintln!("{runs} runs to make, {finished} already done"),
        Progress::SettingUp { workload } => eprintln!("setting up {workload}"),
        Progress::Begin {
            nr,
            workload,
            configuration,
            repeat,
        } => {
            eprintln!("run {nr}: {workload} with {configuration}, repeat {}", repeat + 1);
        }
        Progress::End { run, seconds } => match &run.failure {
            Some(failure) => eprintln!("  failed after {seconds:.0} s: {failure}"),
            None => eprintln!("  done in {seconds:.0} s"),
        },
        Progress::Stopped => eprintln!("stopped; run the same command again to resume"),
    }
}
