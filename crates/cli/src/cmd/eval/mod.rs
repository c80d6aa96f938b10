//! `thermo eval`: experiments, one file per verb that needs more than an experiment file.

mod experiment;
mod lifecycle;

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
    /// Compare applications switched among in little memory, with and without hints about those put away.
    ///
    /// Prints the table of the patches of 2019 (counter, A, B, delta, ratio) with starts, kills, launch times and CPU
    /// time. Every run is kept as soon as it ends. It makes its own zram swap and control groups, and removes them.
    #[command(after_help = "Examples:
  thermo eval lifecycle
  thermo eval lifecycle --repeats 3 --switches 20 --results /tmp/trial --json")]
    Lifecycle(lifecycle::Lifecycle),
}

impl Eval {
    /// Does what was asked.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Reclaim(arguments) => arguments.run("reclaim"),
            Verb::Lifecycle(verb) => verb.run(),
        }
    }
}
