//! Bytes that a scheme matched at least once.
//!
//! Without an action (`stat`, dry runs) the same memory matches again at every application, so a plain sum
//! counts it many times.

use std::collections::BTreeMap;

use rangemap::RangeSet;
use thermo_engine::ops::TargetId;
use thermo_units::{AddrRange, Bytes};

/// The matched ranges of each target.
#[derive(Debug, Clone, Default)]
pub struct DistinctBytes {
    targets: BTreeMap<TargetId, RangeSet<u64>>,
    /// Bytes of targets that have ended.
    ended: Bytes,
}

impl DistinctBytes {
    /// Adds `range` of a target.
    pub fn insert(&mut self, id: TargetId, range: AddrRange) {
        if !range.is_empty() {
            let ranges = self.targets.entry(id).or_default();
            ranges.insert(range.start.0..range.end.0);
        }
    }

    /// Drops the ranges of a target that has ended. Its bytes stay in the sum.
    pub fn target_ended(&mut self, id: TargetId) {
        if let Some(ranges) = self.targets.remove(&id) {
            self.ended += len(&ranges);
        }
    }

    /// Adds what `other` has. Bytes of targets that have ended are added without a comparison.
    pub fn add(&mut self, other: &Self) {
        for (id, ranges) in &other.targets {
            self.targets
                .entry(*id)
                .or_default()
                .extend(ranges.iter().cloned());
        }
        self.ended += other.ended;
    }

    /// The number of bytes.
    pub fn bytes(&self) -> Bytes {
        self.targets.values().map(len).sum::<Bytes>() + self.ended
    }
}

fn len(ranges: &RangeSet<u64>) -> Bytes {
    Bytes(ranges.iter().map(|range| range.end - range.start).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_matched_again_count_once() {
        let mut distinct = DistinctBytes::default();
        let (a, b) = (TargetId(1), TargetId(2));
        for (id, start, end) in [
            (a, 0, 100),
            (a, 50, 150),
            (b, 0, 100),
            (a, 400, 500),
            (a, 90, 410),
        ] {
            distinct.insert(id, AddrRange::new(start, end));
        }
        assert_eq!(distinct.bytes(), Bytes(600));
        distinct.target_ended(a);
        distinct.insert(b, AddrRange::new(0, 50));
        assert_eq!(distinct.bytes(), Bytes(600));
    }
}
