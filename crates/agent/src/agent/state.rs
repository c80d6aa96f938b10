//! What is kept in the state directory: the ledger, and the history of each policy.

use std::path::Path;
use std::sync::Arc;

use thermo_engine::budget::CpuShare;
use thermo_kernel::clock::{self, WallClock};
use thermo_kernel::uname;
use thermo_recording::history::{self, Clocks, Retention, RetentionClock, SegmentWriter, WriteLimits};
use thermo_recording::model::{Metadata, Settings};
use thermo_units::Nanos;

use super::Agent;
use crate::config::Config;
use crate::policy::MakeHistory;

impl Agent {
    pub(super) fn save(&mut self) {
        if let Err(error) = self.ledger.save(&self.config.state_dir) {
            let dir = self.config.state_dir.display();
            self.warn(format!("the ledger is not written to {dir}: {error}"));
        }
    }

    /// Removes what is too old or too much of the history.
    pub(super) fn prune(&mut self, now: Nanos) {
        let Some(history) = self.config.history else {
            return;
        };
        let retention = Retention {
            max_age: history.keep,
            max_bytes: history.max_size,
        };
        let clocks = Clocks {
            monotonic: now,
            unix: Nanos::millis(self.unix_ms(now)),
        };
        let state_dir = &self.config.state_dir;
        let clock = match self.retention_clock {
            Some(clock) => Ok(clock),
            None => RetentionClock::begin(state_dir, clocks),
        };
        let pruned = clock.and_then(|clock| {
            self.retention_clock = Some(clock);
            history::prune(state_dir, &retention, clock.now(clocks))
        });
        if let Err(error) = pruned {
            self.warn(format!("the history is not pruned: {error}"));
        }
    }
}

/// Makes writers of the history as the configuration says.
pub(super) fn history_maker(config: &Arc<Config>) -> MakeHistory {
    let config = Arc::clone(config);
    Box::new(move |policy, tracker| {
        let history = config.history?;
        let limits = WriteLimits {
            every: history.every,
            ..WriteLimits::default()
        };
        let monotonic = clock::monotonic();
        let unix = WallClock::now().unix(monotonic);
        let (budget, targets) = (config.budget, policy.rule.text());
        let schemes: Vec<String> = policy.schemes.iter().map(thermo_schemes::describe).collect();
        let metadata = move || metadata(tracker, budget, &targets, &schemes);
        let now = Clocks { monotonic, unix };
        // The configuration allows only names that can be those of folders.
        SegmentWriter::new(&config.state_dir, &policy.name, limits, now, metadata).ok()
    })
}

/// Metadata of a segment. Times and schema are filled in by the writer.
fn metadata(tracker: &str, budget: CpuShare, targets: &str, schemes: &[String]) -> Metadata {
    let uname = uname::read(Path::new("/"));
    Metadata {
        writer: concat!("thermo ", env!("CARGO_PKG_VERSION")).to_owned(),
        kernel: uname.release,
        arch: uname.machine,
        tracker: tracker.to_owned(),
        targets: targets.to_owned(),
        settings: Settings {
            cpu_budget_percent: Some(budget.percent()),
            ..Settings::default()
        },
        schemes: schemes.to_vec(),
        ..Metadata::default()
    }
}
