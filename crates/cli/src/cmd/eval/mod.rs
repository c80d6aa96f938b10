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

    /// Compare sudden memory pressure with and without LRU lists that were sorted beforehand.
    ///
    /// Each workload runs alone (`orig`), under pressure (`mprs`: its memory limited to 75 % of its peak for a second,
    /// after every ten at 200 %), and under pressure while `thermo lru-sort` sorts (`plrus`). It makes its own zram swap
    /// and control groups, and removes them.
    #[command(after_help = "Examples:
  thermo eval plrus --html plrus.html
  thermo eval plrus --repeats 10 --workload redis --configuration mprs --configuration plrus --json")]
    Plrus(experiment::Arguments),
}

impl Eval {
    /// Does what was asked.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Reclaim(arguments) => arguments.run("reclaim"),
            Verb::Plrus(arguments) => arguments.run("plrus"),
        }
    }
}
