//! How many different bytes a scheme matched. What is only counted, or decided and not done, matches again at each turn.

use std::collections::BTreeMap;

use rangemap::RangeSet;
use thermo_engine::ops::TargetId;
use thermo_units::{AddrRange, Bytes};

/// The memory that was matched at least once.
#[derive(Debug, Clone, Default)]
pub struct Distinct {
    targets: BTreeMap<TargetId, RangeSet<u64>>,
    /// Of targets that are gone.
    gone: Bytes,
}

impl Distinct {
    /// Adds `range` of a target.
    pub fn insert(&mut self, id: TargetId, range: AddrRange) {
        if !range.is_empty() {
            let ranges = self.targets.entry(id).or_default();
            ranges.insert(range.start.0..range.end.0);
        }
    }

    /// Says that a target is gone: its bytes stay counted.
    pub fn forget(&mut self, id: TargetId) {
        if let Some(ranges) = self.targets.remove(&id) {
            self.gone += len(&ranges);
        }
    }

    /// How many bytes that is.
    pub fn bytes(&self) -> Bytes {
        self.targets.values().map(len).sum::<Bytes>() + self.gone
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
        let mut distinct = Distinct::default();
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
        distinct.forget(a);
        distinct.insert(b, AddrRange::new(0, 50));
        assert_eq!(distinct.bytes(), Bytes(600));
    }
}
