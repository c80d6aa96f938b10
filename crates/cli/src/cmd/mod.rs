//! The verbs, one file each.

mod advise;
mod agent;
mod doctor;
mod export;
mod forecast;
mod fs;
mod generate;
mod hint;
mod lifecycle;
mod lru_sort;
mod pagein;
mod reclaim;
mod record;
mod report;
mod run;
mod schemes;
mod tier;
mod top;

use clap::{Parser, Subcommand};
pub use lifecycle::default_socket as lifecycle_socket;
use thermo_term::exit::Exit;

/// Find out which memory of running programs is hot and which is cold, and act on it.
///
/// Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 negative answer
/// (`thermo VERB --help` says when), 2 error or misuse, 130 interrupted. A verb that starts a command exits
/// with the command's code.
#[derive(Debug, Parser)]
#[command(name = "thermo", version, max_term_width = 100)]
#[command(after_help = "Examples:
  thermo run -- redis-server --port 7777
  thermo record --pid 4242 --duration 30s
  thermo report summary thermo.arrow")]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Doctor(doctor::Doctor),
    Run(run::Run),
    Record(record::Record),
    Report(report::Report),
    Top(top::Top),
    Export(export::Export),
    Advise(advise::Advise),
    Agent(agent::Agent),
    Forecast(forecast::Forecast),
    Schemes(schemes::Schemes),
    Reclaim(reclaim::Reclaim),
    LruSort(lru_sort::LruSort),
    Tier(tier::Tier),
    Hint(hint::Hint),
    Pagein(pagein::Pagein),
    Lifecycle(lifecycle::Lifecycle),
    Fs(fs::Fs),
    #[command(hide = true)]
    Gen(thermo_manual::Gen),
}

impl Cli {
    /// Runs the verb.
    ///
    /// # Errors
    /// One sentence for the user.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Doctor(verb) => verb.run(),
            Verb::Run(verb) => verb.run(),
            Verb::Record(verb) => verb.run(),
            Verb::Report(verb) => verb.run(),
            Verb::Top(verb) => verb.run(),
            Verb::Export(verb) => verb.run(),
            Verb::Advise(verb) => verb.run(),
            Verb::Agent(verb) => verb.run(),
            Verb::Forecast(verb) => verb.run(),
            Verb::Schemes(verb) => verb.run(),
            Verb::Reclaim(verb) => verb.run(),
            Verb::LruSort(verb) => verb.run(),
            Verb::Tier(verb) => verb.run(),
            Verb::Hint(verb) => verb.run(),
            Verb::Pagein(verb) => verb.run(),
            Verb::Lifecycle(verb) => verb.run(),
            Verb::Fs(verb) => verb.run(),
            Verb::Gen(verb) => verb.run(&generate::PROGRAM),
        }
    }
}
