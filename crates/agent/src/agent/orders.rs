//! Orders of users, and the configuration that is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermo_units::Nanos;

use super::state::history_maker;
use super::{Agent, AgentError, read_config};
use crate::api::{DecisionKind, Mode, Refusal};
use crate::config::{Config, PolicyConfig};
use crate::policy::Policy;
use crate::service::{Answer, Command, explain_process};

impl Agent {
    pub(super) fn execute(&mut self, what: &Command) -> Result<Answer, Refusal> {
        match what {
            Command::Pause(policy, paused) => self.pause(policy.as_deref(), *paused)?,
            Command::SetMode(policy, mode) => self.set_mode(policy, *mode)?,
            Command::Reload => self
                .reload()
                .map_err(|error| Refusal::Invalid(error.to_string()))?,
            Command::Explain(pid, audience) => {
                let asked = (*pid, *audience);
                let explanation = explain_process(&self.root, &self.config, self.table.pods(), asked)?;
                return Ok(Answer::Explained(Box::new(explanation)));
            }
        }
        Ok(Answer::Done)
    }

    pub(super) fn pause(&mut self, name: Option<&str>, paused: bool) -> Result<(), Refusal> {
        if let Some(name) = name {
            self.policy(name)?;
        }
        let mut changed = Vec::new();
        for policy in &mut self.policies {
            if name.is_none_or(|name| policy.config.name == name) {
                policy.pause(paused);
                changed.push(policy.config.name.clone());
            }
        }
        let (kind, why) = match paused {
            true => (DecisionKind::Paused, "A user paused it."),
            false => (DecisionKind::Resumed, "A user let it go on."),
        };
        for policy in changed {
            self.decide(&policy, kind, why.to_owned());
        }
        Ok(())
    }

    pub(super) fn set_mode(&mut self, name: &str, mode: Mode) -> Result<(), Refusal> {
        let policy = self.policy(name)?;
        let before = policy.mode;
        policy.set_mode(mode).map_err(Refusal::Invalid)?;
        let why = format!("A user changed it from {} to {}.", before.name(), mode.name());
        self.decide(name, DecisionKind::ModeChanged, why);
        Ok(())
    }

    pub(super) fn policy(&mut self, name: &str) -> Result<&mut Policy, Refusal> {
        let names: Vec<String> = self
            .policies
            .iter()
            .map(|policy| policy.config.name.clone())
            .collect();
        let mut policies = self.policies.iter_mut();
        let found = policies.find(|policy| policy.config.name == name);
        found.ok_or_else(|| {
            Refusal::NotFound(format!(
                "there is no policy {name:?}: there are {}",
                names.join(", ")
            ))
        })
    }

    /// Reads the configuration again. Policies that have not changed go on; the others begin anew.
    ///
    /// # Errors
    /// It cannot be read, or has a mistake; then nothing changes.
    pub fn reload(&mut self) -> Result<(), AgentError> {
        let config = read_config(&self.options)?;
        if let Some(key) = fixed_key_that_differs(&self.config, &config) {
            return Err(AgentError::NeedsRestart { key });
        }
        let history_is_same = self.config.history == config.history;
        let export_is_same = self.config.export == config.export;
        self.config = Arc::new(config);
        self.shared.set_config(Arc::clone(&self.config));
        self.make_policies(history_is_same);
        if !export_is_same {
            self.begin_export();
        }
        self.table.clear();
        self.next_find = Nanos::ZERO;
        self.decide(
            "",
            DecisionKind::Reloaded,
            "The configuration was read again.".to_owned(),
        );
        Ok(())
    }

    /// Makes the policies of the configuration. Those that run and are in it unchanged go on if `keep`;
    /// others begin anew, but stay paused or suspended.
    pub(super) fn make_policies(&mut self, keep: bool) {
        let mut before: BTreeMap<String, Policy> = std::mem::take(&mut self.policies)
            .into_iter()
            .map(|policy| (policy.config.name.clone(), policy))
            .collect();
        let config = Arc::clone(&self.config);
        for config in &config.policies {
            let policy = match before.remove(&config.name) {
                Some(policy) if keep && policy.config.is_same(config) => self.keep_policy(policy, config),
                kept => self.new_policy(config, kept),
            };
            self.policies.push(policy);
        }
        for mut policy in before.into_values() {
            policy.stop();
            self.add_ended_cpu(policy.cpu());
        }
        let holds = self
            .policies
            .iter()
            .map(|policy| (policy.config.name.clone(), policy.hold_flag()));
        self.shared.set_holds(holds.collect());
    }

    /// A mode that a user had set ends.
    fn keep_policy(&mut self, mut policy: Policy, config: &PolicyConfig) -> Policy {
        policy.config = config.clone();
        if policy.mode != config.mode
            && let Err(why) = policy.set_mode(config.mode)
        {
            self.warn(format!(
                "policy {} stays in mode {}: {why}",
                config.name,
                policy.mode.name()
            ));
        }
        policy
    }

    fn new_policy(&mut self, config: &PolicyConfig, before: Option<Policy>) -> Policy {
        let number = self.next_number;
        self.next_number += 1;
        let mut policy = Policy::new(
            number,
            config.clone(),
            self.config.budget,
            history_maker(&self.config),
        );
        if let Some(mut before) = before {
            before.stop();
            policy.inherit(&before);
        }
        policy
    }
}

/// The first key that only a restart can change, and that differs.
fn fixed_key_that_differs(before: &Config, after: &Config) -> Option<&'static str> {
    [
        ("state_dir", before.state_dir != after.state_dir),
        ("[http]", before.http != after.http),
        ("[kubernetes]", before.kubernetes != after.kubernetes),
        ("lifecycle", before.lifecycle != after.lifecycle),
    ]
    .into_iter()
    .find_map(|(key, differs)| differs.then_some(key))
}
