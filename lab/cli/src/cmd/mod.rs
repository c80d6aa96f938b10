//! The verbs, one file for each that needs more than an experiment file.

mod experiment;
mod lifecycle;
mod monitor;
mod squeeze;
mod workload;

use clap::{Parser, Subcommand};
use thermo_term::exit::Exit;

/// Measure what something saves and costs, on real programs and on workloads whose accesses are known.
///
/// Experiments set up swap, control groups and load of their own: run them on a machine where nobody else works. They
/// start `thermo` and `thermo-nbd`, which are expected beside this command or on PATH. Data goes to standard output,
/// everything else to standard error. Exit codes: 0 done, 1 a run failed, 2 error or misuse, 130 interrupted.
#[derive(Debug, Parser)]
#[command(
    name = "thermo-lab",
    version,
    max_term_width = 100,
    after_help = "Examples:
  thermo-lab reclaim --repeats 3 --workload redis
  thermo-lab workload workloads/stairs.cfg"
)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Compare trackers, patterns and settings of monitoring, or judge one recording, by what really was touched.
    ///
    /// Workloads that write down what they touch are watched in several ways; how much of what was told to be hot is,
    /// and the other way round, how exact borders are, how soon changes are told, and what looking costs are compared.
    #[command(after_help = "Examples:
  thermo-lab monitor --repeats 3 --workload stairs --html monitor.html
  thermo-lab monitor --judge recording.arrow --truth truth.jsonl --json")]
    Monitor(monitor::Monitor),

    /// Compare configurations of proactive reclaim over workloads and repeats.
    ///
    /// Every run is kept as soon as it ends; an experiment that was interrupted goes on where it was when it is
    /// started again. It makes its own zram swap and control groups, and removes them.
    #[command(after_help = "Examples:
  thermo-lab reclaim
  thermo-lab reclaim my.toml --repeats 3 --workload redis --json")]
    Reclaim(experiment::Arguments),

    /// Compare huge pages everywhere with huge pages where memory is hot.
    ///
    /// The configurations set the machine's mode of transparent huge pages for their runs, and what it was before is put
    /// back after each. The tables end with how much of the memory overhead of `thp` the others remove, and how much of
    /// its speed-up they preserve.
    #[command(after_help = "Examples:
  thermo-lab huge-pages
  thermo-lab huge-pages --repeats 2 --workload python --configuration thp --configuration ethp")]
    HugePages(experiment::Arguments),

    /// Compare sudden memory pressure with and without LRU lists that were sorted beforehand.
    ///
    /// Each workload runs alone (`orig`), under pressure (`mprs`: its memory limited to 75 % of its peak for a second,
    /// after every ten at 200 %), and under pressure while `thermo lru-sort` sorts (`plrus`). It makes its own zram swap
    /// and control groups, and removes them.
    #[command(after_help = "Examples:
  thermo-lab lru-sort --html lru-sort.html
  thermo-lab lru-sort --repeats 10 --workload redis --configuration mprs --configuration plrus --json")]
    LruSort(experiment::Arguments),

    /// Compare applications switched among in little memory, with and without hints about those put away.
    ///
    /// Prints the table of the patches of 2019 (counter, A, B, delta, ratio) with starts, kills, launch times and CPU
    /// time. Every run is kept as soon as it ends. It makes its own zram swap and control groups, and removes them.
    #[command(after_help = "Examples:
  thermo-lab lifecycle
  thermo-lab lifecycle --repeats 3 --switches 20 --results /tmp/trial --json")]
    Lifecycle(lifecycle::Lifecycle),

    /// Show what giving free buffers back under pressure saves, and costs, with `thermo-nbd` and many devices.
    ///
    /// Three experiments: pages swapped in and out without squeezing and with; the same for squeezes of 1, 10 and
    /// 100 ms; throughput when no free page is ever kept. It makes its own zram swap and control group (root), and
    /// removes them.
    #[command(after_help = "Examples:
  thermo-lab squeeze --devices 64
  thermo-lab squeeze --part throughput --repeats 5 --json")]
    Squeeze(squeeze::Squeeze),

    #[command(name = "squeeze-neighbour", hide = true)]
    Neighbour(squeeze::Neighbour),

    Workload(workload::Workload),
}

impl Cli {
    /// Does what was asked.
    ///
    /// # Errors
    /// One sentence for the user.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Monitor(verb) => verb.run(),
            Verb::Reclaim(arguments) => arguments.run("reclaim"),
            Verb::HugePages(arguments) => arguments.run("huge-pages"),
            Verb::LruSort(arguments) => arguments.run("lru-sort"),
            Verb::Lifecycle(verb) => verb.run(),
            Verb::Squeeze(verb) => verb.run(),
            Verb::Neighbour(verb) => verb.run(),
            Verb::Workload(verb) => verb.run(),
        }
    }
}
