//! The memory nodes that a scheme moves memory to.

use thermo_units::{Addr, PAGE_SIZE};

/// A memory node to migrate to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// Number of the node.
    pub nid: u32,
    /// Share of the pages that go to this node, relative to the weights of the scheme's other nodes.
    pub weight: u32,
}

impl Destination {
    /// All pages go to node `nid`.
    #[must_use]
    pub const fn only(nid: u32) -> Self {
        Self { nid, weight: 1 }
    }
}

/// The node among `destinations` to which the page at `addr` belongs, of which one has `unit` bytes. The node
/// follows from the address alone, so that a page that was moved once stays. `None` without a weight.
#[must_use]
pub fn node_of(destinations: &[Destination], addr: Addr, unit: u64) -> Option<u32> {
    if let [only] = destinations {
        return (only.weight > 0).then_some(only.nid);
    }
    let sum: u64 = destinations
        .iter()
        .map(|destination| u64::from(destination.weight))
        .sum();
    let mut rest = (addr.0 / unit.max(PAGE_SIZE)).checked_rem(sum)?;
    for destination in destinations {
        let weight = u64::from(destination.weight);
        if rest < weight {
            return Some(destination.nid);
        }
        rest -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_interleaved_by_weight() {
        let nodes = |destinations: &[Destination], unit: u64| -> Vec<Option<u32>> {
            (0..5)
                .map(|nth| node_of(destinations, Addr(nth * unit), unit))
                .collect()
        };
        let two = [
            Destination { nid: 0, weight: 3 },
            Destination { nid: 4, weight: 1 },
        ];
        let interleaved = [Some(0), Some(0), Some(0), Some(4), Some(0)];
        assert_eq!(nodes(&two, PAGE_SIZE), interleaved);
        assert_eq!(nodes(&two, 2 << 20), interleaved);
        assert_eq!(nodes(&[Destination::only(7)], PAGE_SIZE), [Some(7); 5]);
        assert_eq!(nodes(&[], PAGE_SIZE), [None; 5]);
        assert_eq!(nodes(&[Destination { nid: 1, weight: 0 }], PAGE_SIZE), [None; 5]);
    }
}
