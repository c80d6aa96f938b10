//! Groups of flags that several verbs share, declared once.

pub mod agent_address;
pub mod candidates;
mod intervals_goal;
pub mod moment;
mod monitoring;
pub mod number;
mod output;
pub mod past;
mod run_opts;
mod scheme_opts;
mod targets;

pub use monitoring::Monitoring;
pub use output::Output;
pub use run_opts::RunOpts;
pub use scheme_opts::{Limits, SchemeOpts};
pub use targets::{Targets, TargetsOrSystem};

/// Parses flags of one group, without a verb around them.
#[cfg(test)]
pub fn parsed<T: clap::Args>(flags: &[&str]) -> T {
    let command = T::augment_args(clap::Command::new("thermo").no_binary_name(true));
    let parsed = command
        .try_get_matches_from(flags)
        .and_then(|mut matches| T::from_arg_matches_mut(&mut matches));
    parsed.unwrap_or_else(|error| panic!("{error}"))
}
