//! `thermo agent`: stays, watches the programs of its configuration, and acts where that allows it.
//! docs/guide/agent.md describes it.

mod client;
mod lifecycle;
mod run;
mod text;

use std::path::PathBuf;

use thermo_term::exit::Exit;

use crate::args::agent_address::AgentAddress;
use crate::args::candidates;

/// Watch programs for as long as the machine runs, and act where the configuration allows it.
///
/// Without a verb, the agent runs in the foreground until Ctrl-C. SIGHUP makes it read its configuration
/// again; a mistake in it changes nothing. The other verbs ask a running agent.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  thermo agent --config agent.toml --listen 127.0.0.1:9402
  thermo agent check agent.toml
  thermo agent explain 4242
  thermo agent pause databases")]
pub struct Agent {
    #[command(subcommand)]
    verb: Option<Verb>,

    #[command(flatten)]
    run: run::Run,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Check a configuration: the first mistake is named with line and column, and exit code 2.
    #[command(after_help = "Examples:
  thermo agent check
  thermo agent check agent.toml")]
    Check {
        /// The configuration
        #[arg(default_value = run::CONFIG)]
        config: PathBuf,
    },
    /// Show targets and policies.
    #[command(after_help = "Examples:
  thermo agent status
  thermo agent status --json")]
    Status {
        #[command(flatten)]
        common: Common,
    },
    /// Show which policy a process belongs to, and why.
    #[command(after_help = "Examples:
  thermo agent explain 4242
  thermo agent explain 4242 --json")]
    Explain {
        /// The process
        #[arg(add = candidates::pids())]
        pid: u32,
        #[command(flatten)]
        common: Common,
    },
    /// Show the last decisions, with their reasons.
    #[command(after_help = "Examples:
  thermo agent why
  thermo agent why redis.service --json")]
    Why {
        /// Only of this target
        #[arg(add = candidates::targets())]
        target: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Show what was done, what came back, and what was saved.
    #[command(after_help = "Examples:
  thermo agent ledger
  thermo agent ledger --days
  thermo agent ledger --days --targets --json")]
    Ledger {
        /// Sums of each day in UTC, a row for each policy
        #[arg(long)]
        days: bool,
        /// Also a row for each target
        #[arg(long, requires = "days")]
        targets: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Stop acting at once: of one policy, or of all. Watching goes on.
    #[command(after_help = "Examples:
  thermo agent pause databases
  thermo agent pause")]
    Pause {
        /// The policy
        #[arg(add = candidates::policies())]
        policy: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Let a policy go on that was paused or suspended, or all.
    #[command(after_help = "Examples:
  thermo agent resume databases
  thermo agent resume")]
    Resume {
        /// The policy
        #[arg(add = candidates::policies())]
        policy: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Change the mode of a policy until the agent ends or reads its configuration again.
    #[command(after_help = "Examples:
  thermo agent mode databases dry-run
  thermo agent mode databases act")]
    Mode {
        /// The policy
        #[arg(add = candidates::policies())]
        policy: String,
        /// observe, dry-run or act
        #[arg(value_parser = client::mode, add = candidates::modes())]
        mode: thermo_agent::api::Mode,
        #[command(flatten)]
        common: Common,
    },
    /// Read the configuration again.
    #[command(after_help = "Examples:
  thermo agent reload
  thermo agent reload --agent /run/thermo/other.sock")]
    Reload {
        #[command(flatten)]
        common: Common,
    },
}

/// Flags of the verbs that ask a running agent.
#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    address: AgentAddress,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Agent {
    /// Runs the agent, or the verb.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            None => self.run.run(),
            Some(Verb::Check { config }) => run::check(&config),
            Some(Verb::Status { common }) => client::status(&common),
            Some(Verb::Explain { pid, common }) => client::explain(pid, &common),
            Some(Verb::Why { target, common }) => client::why(target.as_deref(), &common),
            Some(Verb::Ledger {
                days,
                targets,
                common,
            }) => match days {
                true => client::ledger_days(targets, &common),
                false => client::ledger(&common),
            },
            Some(Verb::Pause { policy, common }) => client::pause(policy.as_deref(), true, &common),
            Some(Verb::Resume { policy, common }) => client::pause(policy.as_deref(), false, &common),
            Some(Verb::Mode { policy, mode, common }) => client::set_mode(&policy, mode, &common),
            Some(Verb::Reload { common }) => client::reload(&common),
        }
    }
}
