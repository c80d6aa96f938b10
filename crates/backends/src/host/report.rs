//! The answer for one tracker.

use thermo_kernel::capabilities::{Capabilities, Capability};

/// Whether a tracker can be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackerReport {
    /// Its name, as in `--tracker`.
    pub name: &'static str,
    /// True when it can be used here and now.
    pub available: bool,
    /// What it stands on, or what is missing and would change that.
    pub reason: String,
}

pub(super) fn report(name: &'static str, answer: Result<String, String>) -> TrackerReport {
    let available = answer.is_ok();
    TrackerReport {
        name,
        available,
        reason: answer.unwrap_or_else(|why| why),
    }
}

/// `we lack A, B`, when we do.
pub(super) fn lacking(ours: Capabilities, needed: &[Capability]) -> Option<String> {
    let missing: Vec<&str> = ours.missing(needed).into_iter().map(Capability::name).collect();
    (!missing.is_empty()).then(|| format!("we lack {}", missing.join(", ")))
}
