//! `thermo eval`: experiments, one file per verb that needs more than an experiment file.

mod experiment;

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

    /// Compare huge pages everywhere with huge pages where memory is hot.
    ///
    /// The configurations set the machine's mode of transparent huge pages for their runs, and what it was before is put
    /// back after each. The tables end with how much of the memory overhead of `thp` the others remove, and how much of
    /// its speed-up they preserve.
    #[command(after_help = "Examples:
  thermo eval ethp
  thermo eval ethp --repeats 2 --workload tree --configuration thp --configuration ethp")]
    Ethp(experiment::Arguments),
}

impl Eval {
    /// Does what was asked.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Reclaim(arguments) => arguments.run("reclaim"),
            Verb::Ethp(arguments) => arguments.run("ethp"),
        }
    }
}
