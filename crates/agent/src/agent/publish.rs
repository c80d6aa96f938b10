//! What others see.

use thermo_kernel::{clock, statm, uname};
use thermo_units::Nanos;

use super::Agent;
use crate::api::{Policies, SCHEMA, Status, Targets, UnixMillis};
use crate::policy::Policy;
use crate::service::Published;

impl Agent {
    pub(super) fn publish(&mut self, now: Nanos) {
        let time_ms = self.unix_ms(now);
        let wall_clock = self.wall_clock;
        let to_unix = |time| wall_clock.unix_ms(time);
        let targets = self
            .policies
            .iter_mut()
            .flat_map(|policy| policy.published_targets(now, to_unix))
            .collect();
        let policies = self
            .policies
            .iter()
            .map(|policy| policy.published(to_unix))
            .collect();
        self.shared.publish(Published {
            targets: Targets {
                schema: SCHEMA,
                time_ms,
                targets,
            },
            policies: Policies {
                schema: SCHEMA,
                policies,
            },
            ledger: self.ledger.published(),
            ledger_days: self.ledger.days(),
            status: self.status(time_ms),
        });
    }

    pub(super) fn status(&self, time_ms: UnixMillis) -> Status {
        let sum = |part: fn((Nanos, Nanos)) -> Nanos| -> Nanos {
            let running: Nanos = self.policies.iter().map(|policy| part(policy.cpu())).sum();
            running + part(self.ended_cpu)
        };
        let errors = self.policies.iter().filter_map(|policy| {
            let error = policy.error.as_ref()?;
            Some(format!("policy {} does not run: {error}", policy.config.name))
        });
        let full = self.ledger.is_full().then(|| {
            "the ledger has as many targets as it keeps: targets that have ended share the row (other) of their policy. \
             Give policies a target_name that is the same for many processes"
                .to_owned()
        });
        Status {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: uname::host_name(),
            started_ms: self.started_ms,
            time_ms,
            budget_cpu_share: f64::from(self.config.budget.0) / 1e6,
            watching_cpu_s: (sum(|cpu| cpu.0) + self.own).as_secs_f64(),
            acting_cpu_s: sum(|cpu| cpu.1).as_secs_f64(),
            cpu_s: clock::process_cpu().saturating_sub(self.cpu_begin).as_secs_f64(),
            resident_bytes: statm::read(&self.root, std::process::id()).map_or(0, |statm| statm.resident.0),
            tracker: self
                .policies
                .iter()
                .find_map(Policy::tracker)
                .unwrap_or_default()
                .to_owned(),
            ready: self.is_ready,
            export: self.exporter.is_some().then_some(self.export_status),
            warnings: self
                .warnings
                .iter()
                .cloned()
                .chain(errors)
                .chain(full)
                .chain(self.kubelet_error.clone())
                .collect(),
        }
    }
}
