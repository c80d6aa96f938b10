//! What happened goes to the ledger and to the decisions.

use thermo_kernel::clock;
use thermo_units::Nanos;

use super::Agent;
use crate::api::{Decision, DecisionKind};
use crate::guard::Verdict;
use crate::policy::Happened;

/// Warnings that are kept.
const MAX_WARNINGS: usize = 20;

impl Agent {
    /// Adds what happened to ledger and decisions.
    pub(super) fn account(&mut self, nth: usize, happened: Happened, time: Nanos) {
        let Some(policy) = self.policies.get(nth) else {
            return;
        };
        let name = policy.config.name.clone();
        let mut decisions = self.shared.decisions();
        for ((scheme, target), applied) in &happened.applied {
            let Some(scheme) = policy.config.schemes.get(*scheme) else {
                continue;
            };
            let action = scheme.action.name();
            self.ledger.add_applied(&name, target, action, applied);
            let because = thermo_schemes::describe(scheme);
            decisions.add_applied((&name, target), (action, &because), applied);
        }
        for (target, returns) in &happened.returns {
            self.ledger.add_returns(&name, target, returns);
        }
        drop(decisions);
        let kinds = [
            (DecisionKind::AgeChosen, happened.ages),
            (DecisionKind::Warning, happened.warnings),
        ];
        for (kind, texts) in kinds {
            texts.into_iter().for_each(|why| self.decide(&name, kind, why));
        }
        let resident = policy.resident().0.max(1);
        let (watching, acting) = happened.cpu;
        for (target, state) in &policy.targets {
            // CPU time is divided by resident memory, of which a pass reads every page.
            let part = |cpu: Nanos| {
                let part = u128::from(cpu.0) * u128::from(state.resident().0) / u128::from(resident);
                Nanos(u64::try_from(part).unwrap_or(cpu.0))
            };
            let cpu = (part(watching), part(acting));
            self.ledger.add_time(&name, target, time, state.net_saved, cpu);
        }
    }

    pub(super) fn record_verdict(&mut self, nth: usize, verdict: Verdict) {
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
        self.decide(&policy.config.name.clone(), kind, why);
    }

    pub(super) fn decide(&self, policy: &str, kind: DecisionKind, why: String) {
        let time_ms = self.unix_ms(clock::monotonic());
        let policy = policy.to_owned();
        self.shared.decisions().add(
            time_ms,
            Decision {
                policy,
                kind,
                why,
                ..Decision::default()
            },
        );
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
