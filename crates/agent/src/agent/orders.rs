//! Orders of users, and the configuration that is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermo_units::Nanos;

use super::state::history_maker;
use super::{Agent, AgentError, read_config};
use crate::api::{DecisionKind, Mode, Refusal};
use crate::policy::Policy;
use crate::service::{Answer, What, explain_process};

impl Agent {
    pub(super) fn obey(&mut self, what: &What) -> Result<Answer, Refusal> {
        match what {
            What::Pause(policy, paused) => self.pause(policy.as_deref(), *paused)?,
            What::SetMode(policy, mode) => self.set_mode(policy, *mode)?,
            What::Reload => self
                .reload()
                .map_err(|error| Refusal::Invalid(error.to_string()))?,
            What::Explain(pid) => {
                let explanation = explain_process(&self.root, &self.config, *pid)?;
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
        self.config = Arc::new(config);
        self.shared.set_config(Arc::clone(&self.config));
        self.make_policies();
        self.table.clear();
        self.next_find = Nanos::ZERO;
        self.decide(
            "",
            DecisionKind::Reloaded,
            "The configuration was read again.".to_owned(),
        );
        Ok(())
    }

    /// Makes the policies of the configuration, and keeps the running ones that are in it unchanged.
    pub(super) fn make_policies(&mut self) {
        let mut before: BTreeMap<String, Policy> = std::mem::take(&mut self.policies)
            .into_iter()
            .map(|policy| (policy.config.name.clone(), policy))
            .collect();
        for config in &self.config.policies {
            let kept = before.remove(&config.name);
            let policy = match kept {
                Some(mut policy) if policy.config.is_same(config) => {
                    policy.config = config.clone();
                    // A mode that a user had set ends here. The machine could do what is configured before.
                    drop(policy.set_mode(config.mode));
                    policy
                }
                kept => {
                    kept.into_iter().for_each(|mut policy| policy.stop());
                    let number = self.next_number;
                    self.next_number += 1;
                    Policy::new(
                        number,
                        config.clone(),
                        self.config.budget,
                        history_maker(&self.config),
                    )
                }
            };
            self.policies.push(policy);
        }
        before.into_values().for_each(|mut policy| policy.stop());
    }
}
