//! `thermo eval`: experiments.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use thermo_eval::{Experiment, Options, Progress, Results, run};

use crate::exit::Exit;
use crate::{interrupt, output};

/// How soon an interruption is noticed.
const POLL: Duration = Duration::from_millis(50);

/// Measure what something saves and costs, on real programs.
#[derive(Debug, clap::Args)]
pub struct Eval {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Reclaim(Reclaim),
}

impl Eval {
    /// Does what was asked.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Reclaim(verb) => verb.run(),
        }
    }
}

/// Compare configurations of proactive reclaim over workloads and repeats.
///
/// Every run is kept as soon as it ends; an experiment that was interrupted goes on where it was when it is
/// started again. It makes its own zram swap and control groups, and removes them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo eval reclaim workloads/experiments/reclaim.toml
  thermo eval reclaim my.toml --repeats 3 --workload redis --json")]
struct Reclaim {
    /// The experiment
    file: PathBuf,

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
}

impl Reclaim {
    fn run(self) -> anyhow::Result<Exit> {
        let experiment = Experiment::read(&self.file)?;
        let options = self.options(&experiment)?;
        interrupt::listen()?;
        stop_at_signal(Arc::clone(&options.stop));
        let results = run(&experiment, &options, &mut tell)?;
        self.print(&results)?;
        Ok(match () {
            () if interrupt::asked() => Exit::Interrupted,
            () if !results.failures().is_empty() => Exit::Negative,
            () => Exit::Done,
        })
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
            thermo: std::env::current_exe().context("cannot tell where this program is")?,
            stop: Arc::new(AtomicBool::new(false)),
        })
    }

    fn print(&self, results: &Results) -> anyhow::Result<()> {
        if self.json {
            output::json(&results.json())?;
        } else if self.csv {
            output::text(&results.csv())?;
        } else {
            output::text(&format!("{}\n{}", results.introduction(), results.table()))?;
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

fn stop_at_signal(stop: Arc<AtomicBool>) {
    thread::spawn(move || {
        while !interrupt::asked() {
            thread::sleep(POLL);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
