//! The subcommands. Those that only run an experiment file share `experiment.rs`; each other one has its own
//! file.

mod experiment;
mod fleet;
mod forecast;
mod generate;
mod lifecycle;
mod monitor;
mod nodes;
mod squeeze;
mod workload;

use clap::{Parser, Subcommand};
use thermo_term::exit::Exit;

/// Measure savings and costs of memory management on real programs and on workloads with known accesses.
///
/// Experiments set up their own swap, control groups and load. Run them on a machine that does no other work.
/// They start `thermo` and `thermo-nbd`, which must be in the folder of this command or on PATH. Results go
/// to standard output, messages to standard error. Exit codes: 0 done, 1 a run failed, 2 error or misuse, 130
/// interrupted.
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
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the accuracy and the cost of monitoring, or judge one recording, against known accesses.
    ///
    /// The workloads log which memory they access. Each is monitored with several methods and settings. The
    /// tables compare precision and recall of hot memory, errors at the borders of hot memory, the delay
    /// until a change is detected, and the CPU time of monitoring.
    #[command(after_help = "Examples:
  thermo-lab monitor --repeats 3 --workload stairs --html monitor.html
  thermo-lab monitor --judge recording.arrow --truth truth.jsonl --json")]
    Monitor(monitor::Monitor),

    /// Compare configurations of proactive reclaim over workloads and repeats.
    ///
    /// Every run is saved as soon as it ends; an interrupted experiment resumes when started again. It
    /// creates its own zram swap and control groups, and removes them at the end.
    #[command(after_help = "Examples:
  thermo-lab reclaim
  thermo-lab reclaim my.toml --repeats 3 --workload redis --json")]
    Reclaim(experiment::Arguments),

    /// Compare huge pages everywhere with huge pages where memory is hot.
    ///
    /// The configurations set the system's THP mode for their runs; the previous mode is restored after each
    /// run. The tables end with the share of the memory overhead of `thp` that each other configuration
    /// removes, and the share of its speed-up that each preserves.
    #[command(after_help = "Examples:
  thermo-lab huge-pages
  thermo-lab huge-pages --repeats 2 --workload python --configuration thp --configuration ethp")]
    HugePages(experiment::Arguments),

    /// Compare sudden memory pressure with and without proactive LRU sorting.
    ///
    /// Each workload runs alone (`orig`), under memory pressure (`mprs`: its limit alternates between 200 %
    /// of its peak for 10 s and 75 % for 1 s), and under memory pressure with `thermo lru-sort` (`plrus`). It
    /// creates its own zram swap and control groups, and removes them at the end.
    #[command(after_help = "Examples:
  thermo-lab lru-sort --html lru-sort.html
  thermo-lab lru-sort --repeats 10 --workload redis --configuration mprs --configuration plrus --json")]
    LruSort(experiment::Arguments),

    /// Compare switching between applications under a memory limit, with and without hints about background
    /// ones.
    ///
    /// Prints the table of the kernel patches of 2019 (counter, A, B, delta, ratio) with starts, kills,
    /// launch times and CPU time. Every run is saved as soon as it ends. It creates its own zram swap and
    /// control groups, and removes them at the end.
    #[command(after_help = "Examples:
  thermo-lab lifecycle
  thermo-lab lifecycle --repeats 3 --switches 20 --results /tmp/trial --json")]
    Lifecycle(lifecycle::Lifecycle),

    /// Compare the predictions of `thermo advise` with what `thermo reclaim` then saves and costs.
    ///
    /// Each workload is watched without acting. Then `thermo reclaim` acts with each minimum age, guards and
    /// quotas off. The table has net saving, refaults and compressed size, predicted and measured, and the
    /// share of runs that reach each aim. It needs root, creates its own zram swap and control groups, sets
    /// vm.page-cluster to 0, and undoes all of that.
    #[command(after_help = "Examples:
  thermo-lab forecast --plot forecast.svg
  thermo-lab forecast --workload redis --rounds 1 --age 30s --auto 12m --json")]
    Forecast(forecast::Forecast),

    /// Write what the agents of a simulated fleet would, and the truth of it.
    ///
    /// The real engine monitors simulated memory of twelve job classes: 512 pages a target, each of which
    /// stands for many real pages. Files are as an agent exports them; `truth.json` has their sums, counted
    /// while simulating, and the exact idle ages. The same options give the same bytes, and host number n
    /// depends on the seed and n only. With `--ages`, policies act at these ages on all hosts, and the truth
    /// has the share of host-hours within the bound.
    #[command(after_help = "Examples:
  thermo-lab fleet --hosts 1000 --hours 24 --seed 1 --out fleet
  thermo-lab fleet --hosts 1000 --hours 24 --seed 1 --ages report.json --out judged --json")]
    Fleet(fleet::Fleet),

    /// Measure the effect of freeing buffer pools under memory pressure, with `thermo-nbd` and many devices.
    ///
    /// Three experiments: pages swapped in and out without and with squeezing; the same for squeezes of 1, 10
    /// and 100 ms; throughput when pools never keep a free page. It needs root, creates its own zram swap and
    /// control group, and removes them at the end.
    #[command(after_help = "Examples:
  thermo-lab squeeze --devices 64
  thermo-lab squeeze --part throughput --repeats 5 --json")]
    Squeeze(squeeze::Squeeze),

    #[command(name = "squeeze-neighbour", hide = true)]
    Neighbour(squeeze::Neighbour),

    Nodes(nodes::Nodes),

    Workload(workload::Workload),

    #[command(hide = true)]
    Gen(thermo_manual::Gen),
}

impl Cli {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// When it cannot be run; the message is one sentence for the user.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::Monitor(command) => command.run(),
            Command::Reclaim(arguments) => arguments.run("reclaim"),
            Command::HugePages(arguments) => arguments.run("huge-pages"),
            Command::LruSort(arguments) => arguments.run("lru-sort"),
            Command::Lifecycle(command) => command.run(),
            Command::Forecast(command) => command.run(),
            Command::Fleet(command) => command.run(),
            Command::Squeeze(command) => command.run(),
            Command::Neighbour(command) => command.run(),
            Command::Nodes(command) => command.run(),
            Command::Workload(command) => command.run(),
            Command::Gen(command) => command.run(&generate::PROGRAM),
        }
    }
}
