//! What a scheme did over a session.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use thermo_engine::ops::Skip;
use thermo_engine::scheme::{SchemeStats, Watermarks};
use thermo_engine::sink::TriedRegion;
use thermo_engine::{Action, Scheme};
use thermo_units::Bytes;

use super::distinct_bytes::DistinctBytes;

/// Totals of a scheme over the session.
#[derive(Debug, Clone)]
pub struct SchemeTotal {
    /// The action.
    pub action: Action,
    /// DAMON's statistics.
    pub stats: SchemeStats,
    /// Bytes not acted on, by reason.
    pub skipped: BTreeMap<Skip, Bytes>,
    /// Bytes matched at least once, for schemes that change no memory (`stat`, dry runs).
    pub distinct: Option<DistinctBytes>,
    /// Free memory in thousandths when the watermarks deactivated the scheme; `None` while it is active.
    pub(super) inactive_at: Option<u64>,
    watermarks: Watermarks,
}

impl SchemeTotal {
    /// The totals of `scheme` before it was applied.
    pub fn new(scheme: &Scheme) -> Self {
        Self {
            action: scheme.action,
            stats: SchemeStats::default(),
            skipped: BTreeMap::new(),
            distinct: (scheme.action == Action::Stat).then(DistinctBytes::default),
            inactive_at: None,
            watermarks: scheme.watermarks,
        }
    }

    pub(super) fn add_tried(&mut self, tried: &[TriedRegion]) {
        if let Some(distinct) = &mut self.distinct {
            let ranges = tried.iter().map(|tried| tried.target_range);
            ranges.for_each(|range| distinct.insert(range.target, range.range));
        }
    }

    pub(super) fn add_skipped(&mut self, skipped: &[(Skip, Bytes)]) {
        for (why, bytes) in skipped {
            let sum = self.skipped.entry(*why).or_default();
            *sum = Bytes(sum.0.saturating_add(bytes.0));
        }
    }

    /// A sentence if the scheme was never applied because of its watermarks.
    pub fn inactive_reason(&self) -> Option<String> {
        let free = self.inactive_at.filter(|_| self.stats.nr_tried == 0)?;
        let (low, high) = (self.watermarks.low.0, self.watermarks.high.0);
        Some(format!(
            "{} was inactive (watermarks): {free} thousandths of memory are free, and it acts only between {low} and {high} (low and high watermark)",
            self.action.name()
        ))
    }

    /// Skipped bytes by reason for JSON: `{reason, bytes}` each.
    pub fn skipped_json(&self) -> Value {
        skipped_json(&self.skipped)
    }

    /// Skipped bytes by reason: a line for each, after `prefix`.
    pub fn skipped_text(&self, prefix: &str) -> String {
        skipped_text(&self.skipped, prefix)
    }
}

/// Skipped bytes by reason for JSON: `{reason, bytes}` each.
pub fn skipped_json(skipped: &BTreeMap<Skip, Bytes>) -> Value {
    let entry = |(why, bytes): (&Skip, &Bytes)| json!({ "reason": why.name(), "bytes": bytes.0 });
    skipped.iter().map(entry).collect()
}

/// Skipped bytes by reason: a line for each, after `prefix`.
pub fn skipped_text(skipped: &BTreeMap<Skip, Bytes>, prefix: &str) -> String {
    let line = |(why, bytes): (&Skip, &Bytes)| format!("{prefix}{bytes}: {why}\n");
    skipped.iter().map(line).collect()
}
