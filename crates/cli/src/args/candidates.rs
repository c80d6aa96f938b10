//! What the shell completes for values that depend on the machine. Candidates that every command may need
//! are in `thermo_manual::completions`.

use clap_complete::ArgValueCandidates;
use thermo_agent::api::{Mode, Policies, Targets};
use thermo_agent::lifecycle::{State, client, wire};
use thermo_engine::Action;
pub use thermo_manual::completions::{cgroups, pids, programs, units};
use thermo_manual::completions::{from_function, from_names};
use thermo_web::client::{Address, Client};

use super::agent_address::SOCKET;
use crate::cmd;

/// The actions of schemes and hints.
pub fn actions() -> ArgValueCandidates {
    from_names(Action::ALL.map(Action::name))
}

/// The trackers that `thermo doctor` lists. Whether one works here is not checked: opening BPF programs takes
/// longer than a user waits for a Tab.
pub fn trackers() -> ArgValueCandidates {
    from_names(["auto", "pte", "kdamond", "idle", "smaps", "paddr"])
}

/// The trackers that `thermo fs` has.
pub fn control_file_trackers() -> ArgValueCandidates {
    from_names(["auto", "pte", "smaps"])
}

/// The modes of a policy.
pub fn modes() -> ArgValueCandidates {
    from_names([Mode::Observe, Mode::DryRun, Mode::Act].map(Mode::name))
}

/// The states of an application.
pub fn states() -> ArgValueCandidates {
    from_names(State::ALL.map(State::name))
}

/// The policies of the running agent.
pub fn policies() -> ArgValueCandidates {
    from_function(|| {
        let answer: Option<Policies> = ask_agent("/api/v1/policies");
        let policies = answer.map_or_else(Vec::new, |answer| answer.policies);
        policies.into_iter().map(|policy| policy.name).collect()
    })
}

/// The targets of the running agent.
pub fn targets() -> ArgValueCandidates {
    from_function(|| {
        let answer: Option<Targets> = ask_agent("/api/v1/targets");
        let targets = answer.map_or_else(Vec::new, |answer| answer.targets);
        targets.into_iter().map(|target| target.name).collect()
    })
}

/// The applications of the running daemon.
pub fn apps() -> ArgValueCandidates {
    from_function(|| {
        let answer = cmd::lifecycle_socket()
            .ok()
            .and_then(|socket| client::Client::connect(&socket).ok())
            .and_then(|mut client| client.ask(&wire::Request::Status).ok());
        let apps = answer.and_then(|mut answer| answer["apps"].as_array_mut().map(std::mem::take));
        let names = apps.into_iter().flatten();
        names
            .filter_map(|app| app["name"].as_str().map(str::to_owned))
            .collect()
    })
}

/// Without an agent, or without the right to ask it, there are no candidates.
fn ask_agent<T: serde::de::DeserializeOwned>(path: &str) -> Option<T> {
    let address = Address::Unix(SOCKET.into());
    Client::open(&address).ok()?.get(path).ok()
}
