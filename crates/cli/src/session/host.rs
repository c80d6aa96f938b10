//! What this host can do, and which tracker a session takes.

use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use thermo_backends::host::{self, ActionReport, HostFacts, PteOpened, TrackerReport};
use thermo_backends::idle::{Idle, Paddr};
use thermo_backends::offload::Claim;
use thermo_backends::smaps::Smaps;
use thermo_backends::{PteTracker, Tracker, offload};
use thermo_engine::{Action, Scheme};
use thermo_units::Nanos;

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

/// Who looks.
pub enum Backend {
    /// One of our trackers, a context of our own deciding where.
    Tracker(Box<dyn Tracker + Send>),
    /// The kernel's DAMON, which decides and acts by itself.
    Kernel(Claim),
    /// What looks at physical memory, whoever uses it.
    Machine(Box<Paddr>),
}

/// The tracker of a session.
pub struct Selected {
    /// It.
    pub looker: Backend,
    /// Its name.
    pub name: &'static str,
    /// Why this one, in words.
    pub reason: String,
    /// Whether it stands in for the usual one, which cannot be used.
    is_substitute: bool,
}

impl Selected {
    /// Whether the kernel looks and acts by itself.
    pub const fn offloads(&self) -> bool {
        matches!(self.looker, Backend::Kernel(_))
    }

    /// Looks at shared memory, too, by walks that take `longest` at most.
    ///
    /// # Errors
    /// This tracker cannot.
    pub fn walk_shared(&mut self, longest: Nanos) -> anyhow::Result<()> {
        let walks = match &mut self.looker {
            Backend::Tracker(tracker) => tracker.walk_shared(longest),
            Backend::Kernel(_) | Backend::Machine(_) => false,
        };
        ensure!(
            walks,
            "tracker {} cannot look at shared memory: leave --shared out, or use --tracker pte",
            self.name
        );
        Ok(())
    }

    /// Leaves active pages active, for schemes that sort the kernel's lists.
    pub fn keep_active(&mut self) {
        if let Backend::Tracker(tracker) = &mut self.looker {
            tracker.keep_active();
        }
    }

    /// Says which one it is and why, to who asks; and to everybody when it is not the one that is expected.
    pub fn tell(&self, verbose: bool) {
        if verbose || self.is_substitute {
            eprintln!("thermo: tracker {}: {}", self.name, self.reason);
        }
    }

    /// Whether pages can be scanned.
    pub fn can_scan(&self) -> bool {
        match &self.looker {
            Backend::Tracker(tracker) => tracker.can_scan(),
            Backend::Kernel(_) | Backend::Machine(_) => false,
        }
    }
}

/// What a tracker must be able to do for a session, beyond looking.
#[derive(Debug, Clone, Copy, Default)]
pub struct Requirements<'a> {
    /// What is to be done.
    pub schemes: &'a [Scheme],
    /// Something that only a context of our own does: why one is needed.
    pub own_context: Option<&'static str>,
    /// Every process of the machine is a target.
    pub system: bool,
}

impl Host {
    /// Asks this machine.
    pub fn probe() -> Self {
        let facts = HostFacts::gather(Path::new("/"));
        let opened = PteTracker::new();
        let found = |pte: &PteTracker| PteOpened {
            sees_taken: pte.sees_young().map_err(ToString::to_string),
        };
        let proof = opened.as_ref().map(found).map_err(ToString::to_string);
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

    /// The tracker called `name`, or for `auto` the best one that can do what is wished.
    ///
    /// # Errors
    /// There is none of that name, or it cannot be used here or for this: why, and what would change that.
    pub fn tracker(self, name: &str, seed: u64, wish: Requirements<'_>) -> anyhow::Result<Selected> {
        let (report, passed_over) = match name {
            "auto" => self.best(wish).ok_or_else(|| self.none_works())?,
            name => (self.named(name, wish)?, String::new()),
        };
        let is_substitute = report.name != "pte" && !passed_over.is_empty();
        let (name, reason) = (report.name, format!("{}{passed_over}", report.reason));
        let looker = match (name, self.pte) {
            ("pte", Some(pte)) => Backend::Tracker(Box::new(pte)),
            ("smaps", _) => Backend::Tracker(Box::new(Smaps::new(Path::new("/"), seed))),
            ("idle", _) => Backend::Tracker(Box::new(Idle::new(Path::new("/"))?)),
            // Given back when the session ends, also one that does not come to begin.
            ("kdamond", _) => Backend::Kernel(Claim::take(Path::new("/"))?),
            ("paddr", _) => Backend::Machine(Box::new(Paddr::new(Path::new("/"))?)),
            _ => bail!("tracker {name} is not built yet: use --tracker auto"),
        };
        Ok(Selected {
            looker,
            name,
            reason,
            is_substitute,
        })
    }

    /// The best of our own trackers, for who only looks.
    ///
    /// # Errors
    /// None works here.
    pub fn own_tracker(self, seed: u64) -> anyhow::Result<Box<dyn Tracker + Send>> {
        let wish = Requirements {
            schemes: &[],
            own_context: Some("tells of no single look"),
            system: false,
        };
        match self.tracker("auto", seed, wish)?.looker {
            Backend::Tracker(tracker) => Ok(tracker),
            Backend::Kernel(_) | Backend::Machine(_) => bail!("no tracker of our own can be used here"),
        }
    }

    /// The first that can be used here and for this, and why those before it are not.
    fn best(&self, wish: Requirements<'_>) -> Option<(&TrackerReport, String)> {
        let mut passed_over = String::new();
        for report in &self.trackers {
            let obstacle = match report.available {
                true => self.obstacle_to_wish(report.name, wish),
                // That other kernels have other trackers is no news; the usual one is missed.
                false if report.name == "pte" => Some(report.reason.clone()),
                false => continue,
            };
            match obstacle {
                None => return Some((report, passed_over)),
                Some(why) => passed_over.push_str(&format!(". Not {}: {why}", report.name)),
            }
        }
        None
    }

    fn named(&self, name: &str, wish: Requirements<'_>) -> anyhow::Result<&TrackerReport> {
        let known = || {
            self.trackers
                .iter()
                .map(|report| report.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let report = self.trackers.iter().find(|report| report.name == name);
        let report = report.ok_or_else(|| anyhow!("{name} is not a tracker: use auto, {}", known()))?;
        ensure!(
            report.available,
            "tracker {name} cannot be used here, use --tracker auto for the best there is: {}",
            report.reason
        );
        if let Some(why) = self.obstacle_to_wish(name, wish) {
            bail!("tracker {name} cannot be used for this: {why}. Use --tracker auto for the best there is");
        }
        Ok(report)
    }

    /// Why the tracker cannot do what is wished.
    fn obstacle_to_wish(&self, tracker: &str, wish: Requirements<'_>) -> Option<String> {
        match tracker {
            "kdamond" => self.obstacle_to_offload(wish),
            "paddr" => obstacle_to_paddr(wish),
            _ => None,
        }
    }

    /// The kernel's context cannot do all that ours does.
    fn obstacle_to_offload(&self, wish: Requirements<'_>) -> Option<String> {
        if let Some(why) = wish.own_context {
            return Some(format!("the kernel's context {why}"));
        }
        wish.schemes.iter().find_map(|scheme| {
            let why = offload::obstacle(scheme, &self.facts.uname)?;
            Some(format!("{} by the kernel: {why}", scheme.action))
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

/// Physical memory belongs to nobody who is named, and is only looked at.
fn obstacle_to_paddr(wish: Requirements<'_>) -> Option<String> {
    if !wish.system {
        return Some(
            "it watches all of the machine's memory: say --system instead of naming targets".to_owned(),
        );
    }
    let is_stat = |scheme: &&Scheme| scheme.action == Action::Stat && scheme.filters.ops.is_empty();
    let other = wish.schemes.iter().find(|scheme| !is_stat(scheme))?;
    Some(format!(
        "physical memory is only looked at, so that {} cannot be done to it, nor its pages be filtered",
        other.action
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn physical_memory_takes_the_whole_machine_and_schemes_that_only_look() {
        let obstacle = |schemes: &[Scheme], system| {
            obstacle_to_paddr(Requirements {
                schemes,
                system,
                ..Requirements::default()
            })
        };
        assert!(obstacle(&[], false).unwrap().contains("--system"));
        assert_eq!(obstacle(&[Scheme::new(Action::Stat)], true), None);
        let refused = obstacle(&[Scheme::new(Action::Pageout)], true).unwrap();
        assert!(refused.contains("pageout cannot be done"), "{refused}");
    }
}
