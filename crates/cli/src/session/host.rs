//! What this host can do, and which tracker a session takes.

use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use thermo_core::Action;
use thermo_ops::host::{self, ActionReport, HostFacts, TrackerReport};
use thermo_ops::smaps::Smaps;
use thermo_ops::{PteTracker, Tracker};

/// One probe of the host.
pub struct Host {
    /// What the kernel says.
    pub facts: HostFacts,
    /// Every tracker, usable or not.
    pub trackers: Vec<TrackerReport>,
    /// Every action, usable or not.
    pub actions: Vec<ActionReport>,
    pte: Option<PteTracker>,
}

/// The tracker of a session.
pub struct Chosen {
    /// It.
    pub tracker: Box<dyn Tracker + Send>,
    /// Its name.
    pub name: &'static str,
    /// Why this one, in words.
    pub reason: String,
}

impl Host {
    /// Asks this machine.
    pub fn probe() -> Self {
        let facts = HostFacts::gather(Path::new("/"));
        let opened = PteTracker::new();
        let proof = opened.as_ref().map(|_| ()).map_err(ToString::to_string);
        Self {
            trackers: host::trackers(&facts, &proof),
            actions: host::actions(&facts),
            facts,
            pte: opened.ok(),
        }
    }

    /// The tracker that is taken when none is named.
    pub fn default_tracker(&self) -> Option<&'static str> {
        host::default_tracker(&self.trackers)
    }

    /// The tracker called `name`, or the best one there is for `auto`.
    ///
    /// # Errors
    /// There is none of that name, or it cannot be used here: why, and what would change that.
    pub fn tracker(self, name: &str, seed: u64) -> anyhow::Result<Chosen> {
        let wanted = match name {
            "auto" => self.default_tracker().ok_or_else(|| self.none_works())?,
            name => name,
        };
        let known = || {
            self.trackers
                .iter()
                .map(|report| report.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let report = self.trackers.iter().find(|report| report.name == wanted);
        let report = report.ok_or_else(|| anyhow!("{wanted} is not a tracker: use auto, {}", known()))?;
        ensure!(
            report.available,
            "tracker {wanted} cannot be used here: {}. Use --tracker auto for the best there is",
            report.reason
        );
        let (name, reason) = (report.name, report.reason.clone());
        let tracker: Box<dyn Tracker + Send> = match (name, self.pte) {
            ("pte", Some(pte)) => Box::new(pte),
            ("smaps", _) => Box::new(Smaps::new(Path::new("/"), seed)),
            _ => bail!("tracker {name} is not built yet: use --tracker auto"),
        };
        Ok(Chosen {
            tracker,
            name,
            reason,
        })
    }

    /// Checks that every one of `actions` can be done here.
    ///
    /// # Errors
    /// The first that cannot, and why.
    pub fn check_actions(&self, actions: impl IntoIterator<Item = Action>) -> anyhow::Result<()> {
        for action in actions {
            if let Some(report) = self.obstacle(action) {
                bail!(
                    "{action} cannot be done here: {}. Use --best-effort to go on without it",
                    report.reason
                );
            }
        }
        Ok(())
    }

    /// What stands against `action`, if it cannot be done.
    pub fn obstacle(&self, action: Action) -> Option<&ActionReport> {
        self.actions
            .iter()
            .find(|report| report.action == action && !report.available)
    }

    fn none_works(&self) -> anyhow::Error {
        let reasons = self
            .trackers
            .iter()
            .map(|report| format!("{}: {}", report.name, report.reason));
        anyhow!(
            "no tracker can be used here ({})",
            reasons.collect::<Vec<_>>().join("; ")
        )
    }
}
