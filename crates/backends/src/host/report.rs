//! The report on one tracker.

use thermo_kernel::capabilities::{Capabilities, Capability};

/// Whether a tracker can be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackerReport {
    /// Its name, as in `--tracker`.
    pub name: &'static str,
    /// True if it can be used here and now.
    pub available: bool,
    /// How it works, or what is missing and how to change that.
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

/// `we lack A, B`, if any of `needed` is missing.
pub(super) fn lacking(available: Capabilities, needed: &[Capability]) -> Option<String> {
    let missing: Vec<&str> = available
        .missing(needed)
        .into_iter()
        .map(Capability::name)
        .collect();
    (!missing.is_empty()).then(|| format!("we lack {}", missing.join(", ")))
}
