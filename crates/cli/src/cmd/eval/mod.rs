//! `thermo eval`: experiments, one file per verb that needs more than an experiment file.

mod experiment;
mod monitor;

use crate::exit::Exit;

/// Measure what something saves and costs, on real programs.
#[derive(Debug, clap::Args)]
pub struct Eval {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Compare configurations of proactive reclaim over workloads and repeats.
    ///
    /// Every run is kept as soon as it ends; an experiment that was interrupted goes on where it was when it is
    /// started again. It makes its own zram swap and control groups, and removes them.
    #[command(after_help = "Examples:
  thermo eval reclaim
  thermo eval reclaim my.toml --repeats 3 --workload redis --json")]
    Reclaim(experiment::Arguments),

    /// Compare trackers, patterns and settings of monitoring, or judge one recording, by what really was touched.
    ///
    /// Workloads that write down what they touch are watched in several ways; how much of what was told to be hot is,
    /// and the other way round, how exact borders are, how soon changes are told, and what looking costs are compared.
    #[command(after_help = "Examples:
  thermo eval monitor --repeats 3 --workload stairs --html monitor.html
  thermo eval monitor --judge recording.arrow --truth truth.jsonl --json")]
    Monitor(monitor::Monitor),
}

impl Eval {
    /// Does what was asked.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Reclaim(arguments) => arguments.run("reclaim"),
            Verb::Monitor(monitor) => monitor.run(),
        }
    }
}
