//! The trackers and actions that this host supports, and the choice of a tracker for a session.

use std::path::Path;

use thermo_backends::host::{self, ActionReport, HostFacts, PteOpened, TrackerReport};
use thermo_backends::idle::{Idle, Paddr};
use thermo_backends::offload::{Claim, ClaimError};
use thermo_backends::smaps::Smaps;
use thermo_backends::{PteTracker, Tracker, offload};
use thermo_engine::{Action, Scheme};
use thermo_kernel::FileError;
use thermo_units::Nanos;

/// Why no tracker can be opened, or an action not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No tracker has this name.
    #[error("{name} is not a tracker: use auto, {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names of all trackers.
        known: String,
    },
    /// The tracker does not work on this host.
    #[error("tracker {name} cannot be used here, use --tracker auto for the best available one: {reason}")]
    Unavailable {
        /// The tracker.
        name: &'static str,
        /// The reason.
        reason: String,
    },
    /// The tracker does not meet the requirements of the session.
    #[error(
        "tracker {name} cannot be used for this: {reason}. Use --tracker auto for the best available one"
    )]
    Unsuitable {
        /// The tracker.
        name: &'static str,
        /// The reason.
        reason: String,
    },
    /// No tracker works on this host.
    #[error("no tracker can be used here ({reasons})")]
    NoTracker {
        /// Each tracker with its reason.
        reasons: String,
    },
    /// The tracker cannot monitor memory that several processes map.
    #[error("tracker {name} cannot monitor shared memory: leave --shared out, or use --tracker pte")]
    NoSharedMemory {
        /// The tracker.
        name: &'static str,
    },
    /// The action does not work on this host.
    #[error("{action} cannot be done here: {reason}. Use --best-effort to run without it")]
    Unsupported {
        /// The action.
        action: Action,
        /// The reason.
        reason: String,
    },
    /// The kernel's DAMON is in use.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The idle-page bitmap cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
}

/// One probe of the host.
#[derive(Debug)]
pub struct Host {
    /// Facts read from the kernel.
    pub facts: HostFacts,
    /// Every tracker, available or not.
    pub trackers: Vec<TrackerReport>,
    /// Every action, available or not.
    pub actions: Vec<ActionReport>,
    pte: Option<PteTracker>,
}

/// The source of accesses in a session.
pub enum Backend {
    /// A tracker, driven by our engine.
    Tracker(Box<dyn Tracker + Send>),
    /// The kernel's DAMON: it monitors and applies schemes by itself.
    Kernel(Claim),
    /// Physical memory, whichever process uses it.
    Physical(Box<Paddr>),
}

/// The tracker of a session.
pub struct Selected {
    /// The tracker itself.
    pub backend: Backend,
    /// Its name.
    pub name: &'static str,
    /// Why it was selected, in words.
    pub reason: String,
    /// Whether it replaces the usual tracker (`pte`), which cannot be used.
    pub is_substitute: bool,
}

/// A tracker that our engine drives.
pub struct OwnTracker {
    /// The tracker itself.
    pub tracker: Box<dyn Tracker + Send>,
    /// Its name.
    pub name: &'static str,
    /// Why it was selected, in words.
    pub reason: String,
    /// Whether it replaces the usual tracker (`pte`), which cannot be used.
    pub is_substitute: bool,
}

impl Selected {
    /// Whether the kernel's DAMON monitors and applies schemes.
    #[must_use]
    pub const fn is_offloaded(&self) -> bool {
        matches!(self.backend, Backend::Kernel(_))
    }

    /// Enables monitoring of shared memory by page-table walks of at most `max_time`.
    ///
    /// # Errors
    /// The tracker cannot monitor shared memory.
    pub fn walk_shared(&mut self, max_time: Nanos) -> Result<(), HostError> {
        let supported = match &mut self.backend {
            Backend::Tracker(tracker) => tracker.enable_shared_walks(max_time),
            Backend::Kernel(_) | Backend::Physical(_) => false,
        };
        match supported {
            true => Ok(()),
            false => Err(HostError::NoSharedMemory { name: self.name }),
        }
    }

    /// Makes the tracker keep active pages active, for schemes that sort the LRU lists.
    pub fn keep_active(&mut self) {
        if let Backend::Tracker(tracker) = &mut self.backend {
            tracker.keep_active_pages();
        }
    }

    /// Whether the tracker can scan every page.
    #[must_use]
    pub fn can_scan(&self) -> bool {
        match &self.backend {
            Backend::Tracker(tracker) => tracker.can_scan(),
            Backend::Kernel(_) | Backend::Physical(_) => false,
        }
    }
}

impl OwnTracker {
    /// Opens a further tracker of the same name. The host is not probed again: a program that serves DAMON's
    /// control files itself would wait for its own answer.
    ///
    /// # Errors
    /// The tracker cannot be opened any more.
    pub fn open_another(name: &'static str, seed: u64) -> Result<Box<dyn Tracker + Send>, HostError> {
        open_own(name, None, seed)
    }
}

/// Opens a tracker that our engine drives. `pte`: the tracker of this name, if it is open already.
fn open_own(
    name: &'static str,
    pte: Option<PteTracker>,
    seed: u64,
) -> Result<Box<dyn Tracker + Send>, HostError> {
    let unavailable = |reason: String| HostError::Unavailable { name, reason };
    Ok(match (name, pte) {
        ("pte", Some(pte)) => Box::new(pte),
        ("pte", None) => Box::new(PteTracker::new().map_err(|error| unavailable(error.to_string()))?),
        ("idle", _) => Box::new(Idle::new(Path::new("/"))?),
        _ => Box::new(Smaps::new(Path::new("/"), seed)),
    })
}

/// Requirements of a session on its tracker, beyond monitoring.
#[derive(Debug, Clone, Copy, Default)]
pub struct Requirements<'a> {
    /// The schemes to apply.
    pub schemes: &'a [Scheme],
    /// Why the kernel's DAMON cannot run this session, as the end of a sentence; `None` if it can.
    pub own_context: Option<&'static str>,
    /// Every process of the machine is a target.
    pub system: bool,
}

impl Host {
    /// Probes this machine.
    #[must_use]
    pub fn probe() -> Self {
        let facts = HostFacts::gather(Path::new("/"));
        let opened = PteTracker::new();
        let abilities = |pte: &PteTracker| PteOpened {
            young_support: pte.young_support().map_err(ToString::to_string),
        };
        let pte_result = opened.as_ref().map(abilities).map_err(ToString::to_string);
        Self {
            trackers: host::trackers(&facts, &pte_result),
            actions: host::actions(&facts),
            facts,
            pte: opened.ok(),
        }
    }

    /// The tracker that is used when none is named.
    #[must_use]
    pub fn default_tracker(&self) -> Option<&'static str> {
        host::default_tracker(&self.trackers)
    }

    /// Opens the tracker called `name`; `auto` selects the best tracker that meets `requirements`.
    ///
    /// # Errors
    /// No tracker has this name, or the tracker is not available or does not meet the requirements. The
    /// message has the reason and the way out.
    pub fn open_tracker(
        self,
        name: &str,
        seed: u64,
        requirements: Requirements<'_>,
    ) -> Result<Selected, HostError> {
        let (report, rejected) = match name {
            "auto" => self.best(requirements).ok_or_else(|| self.none_available())?,
            name => (self.named(name, requirements)?, String::new()),
        };
        let is_substitute = report.name != "pte" && !rejected.is_empty();
        let (name, reason) = (report.name, format!("{}{rejected}", report.reason));
        let backend = match name {
            // The claim is released on drop, so also when the session does not start.
            "kdamond" => Backend::Kernel(Claim::take(Path::new("/"))?),
            "paddr" => Backend::Physical(Box::new(Paddr::new(Path::new("/"))?)),
            name => Backend::Tracker(open_own(name, self.pte, seed)?),
        };
        Ok(Selected {
            backend,
            name,
            reason,
            is_substitute,
        })
    }

    /// Opens the best tracker that our engine drives.
    ///
    /// # Errors
    /// No such tracker is available.
    pub fn open_own_tracker(self, seed: u64) -> Result<OwnTracker, HostError> {
        let requirements = Requirements {
            schemes: &[],
            own_context: Some("does not report single access checks"),
            system: false,
        };
        let can_use_smaps = self
            .trackers
            .iter()
            .any(|report| report.name == "smaps" && report.available);
        let selected = match self.open_tracker("auto", seed, requirements) {
            Ok(selected) => selected,
            // The idle-page bitmap is there, but cannot be written.
            Err(HostError::File(error)) if can_use_smaps => Selected {
                backend: Backend::Tracker(open_own("smaps", None, seed)?),
                name: "smaps",
                reason: error.to_string(),
                is_substitute: true,
            },
            Err(error) => return Err(error),
        };
        let (name, reason) = (selected.name, selected.reason);
        match selected.backend {
            Backend::Tracker(tracker) => Ok(OwnTracker {
                tracker,
                name,
                reason,
                is_substitute: selected.is_substitute,
            }),
            Backend::Kernel(_) | Backend::Physical(_) => Err(HostError::Unsuitable { name, reason }),
        }
    }

    /// The first tracker that is available and meets the requirements; and why those before it do not.
    fn best(&self, requirements: Requirements<'_>) -> Option<(&TrackerReport, String)> {
        let mut rejected = String::new();
        for report in &self.trackers {
            let obstacle = match report.available {
                true => self.unmet_requirement(report.name, requirements),
                // Only the absence of the usual tracker is worth a message.
                false if report.name == "pte" => Some(report.reason.clone()),
                false => continue,
            };
            match obstacle {
                None => return Some((report, rejected)),
                Some(why) => rejected.push_str(&format!(". Not {}: {why}", report.name)),
            }
        }
        None
    }

    fn named(&self, name: &str, requirements: Requirements<'_>) -> Result<&TrackerReport, HostError> {
        let found = self.trackers.iter().find(|report| report.name == name);
        let Some(report) = found else {
            let known: Vec<&str> = self.trackers.iter().map(|report| report.name).collect();
            return Err(HostError::Unknown {
                name: name.to_owned(),
                known: known.join(", "),
            });
        };
        let name = report.name;
        if !report.available {
            let reason = report.reason.clone();
            return Err(HostError::Unavailable { name, reason });
        }
        match self.unmet_requirement(name, requirements) {
            Some(reason) => Err(HostError::Unsuitable { name, reason }),
            None => Ok(report),
        }
    }

    /// Why the tracker does not meet the requirements.
    fn unmet_requirement(&self, tracker: &str, requirements: Requirements<'_>) -> Option<String> {
        match tracker {
            "kdamond" => self.unmet_by_kdamond(requirements),
            "paddr" => unmet_by_paddr(requirements),
            _ => None,
        }
    }

    /// Why the kernel's DAMON does not meet the requirements.
    fn unmet_by_kdamond(&self, requirements: Requirements<'_>) -> Option<String> {
        if let Some(why) = requirements.own_context {
            return Some(format!("in-kernel DAMON {why}"));
        }
        requirements.schemes.iter().find_map(|scheme| {
            let why = offload::obstacle(scheme, &self.facts.uname)?;
            Some(format!("{} by the kernel: {why}", scheme.action))
        })
    }

    /// Checks that the host supports every one of `actions`.
    ///
    /// # Errors
    /// The first action that is not supported, and why.
    pub fn check_actions(&self, actions: impl IntoIterator<Item = Action>) -> Result<(), HostError> {
        let mut unsupported = actions.into_iter().filter_map(|action| self.unsupported(action));
        match unsupported.next() {
            Some(report) => Err(HostError::Unsupported {
                action: report.action,
                reason: report.reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// The report of `action` if the host does not support it.
    #[must_use]
    pub fn unsupported(&self, action: Action) -> Option<&ActionReport> {
        self.actions
            .iter()
            .find(|report| report.action == action && !report.available)
    }

    fn none_available(&self) -> HostError {
        let reason = |report: &TrackerReport| format!("{}: {}", report.name, report.reason);
        let reasons: Vec<String> = self.trackers.iter().map(reason).collect();
        HostError::NoTracker {
            reasons: reasons.join("; "),
        }
    }
}

/// The tracker of physical memory knows no processes, and applies no action but `stat`.
fn unmet_by_paddr(requirements: Requirements<'_>) -> Option<String> {
    if !requirements.system {
        return Some("it monitors all memory of the machine: give --system instead of targets".to_owned());
    }
    let is_stat = |scheme: &&Scheme| scheme.action == Action::Stat && scheme.filters.ops.is_empty();
    let other = requirements.schemes.iter().find(|scheme| !is_stat(scheme))?;
    Some(format!(
        "physical memory is only monitored: {} cannot be done, and page filters cannot be evaluated",
        other.action
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn paddr_requires_system_and_stat_schemes() {
        let unmet = |schemes: &[Scheme], system| {
            unmet_by_paddr(Requirements {
                schemes,
                system,
                ..Requirements::default()
            })
        };
        assert!(unmet(&[], false).unwrap().contains("--system"));
        assert_eq!(unmet(&[Scheme::new(Action::Stat)], true), None);
        let refused = unmet(&[Scheme::new(Action::Pageout)], true).unwrap();
        assert!(refused.contains("pageout cannot be done"), "{refused}");
    }
}
