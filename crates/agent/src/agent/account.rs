//! What happened goes to the ledger and to the decisions.

use std::collections::BTreeMap;

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::clock;
use thermo_units::{Bytes, Nanos};

use super::Agent;
use crate::api::{Decision, DecisionKind};
use crate::guard::Verdict;
use crate::policy::{Activity, Policy};

/// Warnings that are kept.
const MAX_WARNINGS: usize = 20;

impl Agent {
    /// Adds what happened to ledger and decisions.
    pub(super) fn record_activity(&mut self, nth: usize, activity: Activity, time: Nanos) {
        let Some(policy) = self.policies.get(nth) else {
            return;
        };
        let name = policy.config.name.clone();
        let mut decisions = self.shared.decisions();
        for ((scheme, target), applied) in &activity.applied {
            let Some(scheme) = policy.config.schemes.get(*scheme) else {
                continue;
            };
            let action = scheme.action.name();
            self.ledger.add_applied(&name, target, action, applied);
            if let Some(exporter) = &mut self.exporter {
                exporter.sums.add_applied(&name, target, action, applied);
            }
            let because = thermo_schemes::describe(scheme);
            decisions.add_applied((&name, target), (action, &because), applied);
        }
        self.ledger
            .set_would_act(&name, policy.mode, &would_act(policy, &activity.applied));
        for (target, returns) in &activity.returns {
            self.ledger.add_returns(&name, target, returns);
            if let Some(exporter) = &mut self.exporter {
                exporter.sums.add_returns(&name, target, returns);
            }
        }
        drop(decisions);
        let kinds = [
            (DecisionKind::AgeChosen, activity.ages),
            (DecisionKind::Warning, activity.warnings),
        ];
        for (kind, texts) in kinds {
            texts.into_iter().for_each(|why| self.decide(&name, kind, why));
        }
        let resident = policy.resident().0.max(1);
        let (watching, acting) = activity.cpu;
        for (target, state) in &policy.targets {
            // CPU time is divided by resident memory, of which a pass reads every page.
            let part = |cpu: Nanos| {
                let part = u128::from(cpu.0) * u128::from(state.resident().0) / u128::from(resident);
                Nanos(u64::try_from(part).unwrap_or(cpu.0))
            };
            let cpu = (part(watching), part(acting));
            self.ledger.add_time(&name, target, time, state.net_saved, cpu);
            if let Some(exporter) = &mut self.exporter {
                exporter.sums.add_cpu(&name, target, cpu);
            }
        }
    }

    /// Tells what the guards decided about a target, or about the policy.
    pub(super) fn record_verdict(&self, nth: usize, target: Option<String>, verdict: Verdict) {
        let Some(policy) = self.policies.get(nth) else {
            return;
        };
        let (kind, why) = match verdict {
            Verdict::Suspend(exceeded) => (
                DecisionKind::Suspended,
                format!("{exceeded}. What is out stays out until it is used."),
            ),
            Verdict::Resume => (DecisionKind::Resumed, "The bounds hold again.".to_owned()),
        };
        self.add_decision(Decision {
            policy: policy.config.name.clone(),
            target,
            kind,
            why,
            ..Decision::default()
        });
    }

    pub(super) fn decide(&self, policy: &str, kind: DecisionKind, why: String) {
        self.add_decision(Decision {
            policy: policy.to_owned(),
            kind,
            why,
            ..Decision::default()
        });
    }

    fn add_decision(&self, decision: Decision) {
        let time_ms = self.unix_ms(clock::monotonic());
        self.shared.decisions().add(time_ms, decision);
    }

    /// Counts the CPU time of a policy that ends.
    pub(super) fn add_ended_cpu(&mut self, (watching, acting): (Nanos, Nanos)) {
        self.ended_cpu.0 += watching;
        self.ended_cpu.1 += acting;
    }

    /// Keeps a warning, and prints it the first time.
    pub(super) fn warn(&mut self, text: String) {
        if self.warnings.contains(&text) {
            return;
        }
        thermo_kernel::message!("thermo: {}", thermo_units::printable(&text));
        if self.warnings.len() >= MAX_WARNINGS {
            self.warnings.remove(0);
        }
        self.warnings.push(text);
    }
}

/// What a dry run would have acted on, by target and action; with a 0 where it looked and found nothing.
fn would_act(
    policy: &Policy,
    applied: &BTreeMap<(usize, String), Applied>,
) -> BTreeMap<(String, String), Bytes> {
    let mut sums = BTreeMap::new();
    for ((scheme, target), applied) in applied {
        let Some(scheme) = policy.config.schemes.get(*scheme) else {
            continue;
        };
        let counted = applied.skipped.iter().filter(|(why, _)| *why == Skip::DryRun);
        let sum: Bytes = counted.map(|(_, bytes)| *bytes).sum();
        let key = (target.clone(), scheme.action.name().to_owned());
        *sums.entry(key).or_insert(Bytes::ZERO) += sum;
    }
    sums
}
