//! Memory that one target maps more than once, as collectors with several views of one heap do. Each page
//! counts once: where its first mapping holds it, its other mappings count as not resident.

use std::sync::Arc;

use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::chunk::{ScanChunk, ScanResult};
use super::page_states::PageStates;

/// A mapping of memory that the target maps at lower addresses as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    /// Its addresses.
    pub range: AddrRange,
    /// The lowest address at which the same memory is mapped.
    pub first: Addr,
}

/// The aliases of one target, and how much of them was not counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aliases {
    /// Ascending, disjoint.
    aliases: Arc<[Alias]>,
    this_pass: Bytes,
    last_pass: Bytes,
}

impl Aliases {
    /// Sets the aliases (ascending, disjoint) for later scans.
    pub(crate) fn set(&mut self, aliases: Arc<[Alias]>) {
        self.aliases = aliases;
    }

    /// Removes from `chunk`, which was just scanned, the pages that the target has at lower addresses.
    pub(crate) fn remove_from(&mut self, chunk: &mut ScanChunk, states: &PageStates) {
        let range = chunk.range();
        let first = self
            .aliases
            .partition_point(|alias| alias.range.end <= range.start);
        let overlapping = self.aliases[first..]
            .iter()
            .take_while(|alias| alias.range.start < range.end);
        for alias in overlapping {
            let pages = alias.range.intersection(&range).unwrap_or_default();
            for addr in (pages.start.0..pages.end.0).step_by(PAGE_SIZE as usize) {
                let same_page = Addr(alias.first.0 + (addr - alias.range.start.0));
                if chunk.get(Addr(addr)) != ScanResult::Absent && states.is_resident(same_page) {
                    chunk.unset_range(AddrRange::new(addr, addr + PAGE_SIZE));
                    self.this_pass += Bytes(PAGE_SIZE);
                }
            }
        }
    }

    /// Ends a pass.
    pub(crate) fn end_pass(&mut self) {
        self.last_pass = std::mem::take(&mut self.this_pass);
    }

    /// The bytes that a complete pass did not count.
    pub(crate) fn uncounted(&self) -> Bytes {
        self.this_pass.max(self.last_pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::Nanos;

    const PAGES: u64 = 8;

    fn pages(first: u64, count: u64) -> AddrRange {
        AddrRange::new(first * PAGE_SIZE, (first + count) * PAGE_SIZE)
    }

    fn scanned(range: AddrRange, resident: AddrRange) -> ScanChunk {
        let mut chunk = ScanChunk::default();
        chunk.reset(range);
        chunk.set_range(resident, true);
        chunk
    }

    #[test]
    fn pages_of_aliases_count_once() {
        // The memory of pages 0 to 8 is mapped at page 1000 as well. Pages 4 and later are only used there.
        let mut states = PageStates::new(true);
        states.begin_pass(Nanos::ZERO);
        states.update(&scanned(pages(0, PAGES), pages(0, 4)), Nanos::ZERO);
        let mut aliases = Aliases::default();
        aliases.set(Arc::from([Alias {
            range: pages(1000, PAGES),
            first: Addr(0),
        }]));
        let mut chunk = scanned(pages(998, 16), pages(999, 12));
        aliases.remove_from(&mut chunk, &states);
        let is_resident = |page: u64| chunk.get(Addr(page * PAGE_SIZE)) != ScanResult::Absent;
        let resident: Vec<u64> = (998..1014).filter(|page| is_resident(*page)).collect();
        assert_eq!(resident, [999, 1004, 1005, 1006, 1007, 1008, 1009, 1010]);
        assert_eq!(aliases.uncounted(), Bytes(4 * PAGE_SIZE));
        aliases.end_pass();
        assert_eq!(aliases.uncounted(), Bytes(4 * PAGE_SIZE));
        aliases.end_pass();
        assert_eq!(aliases.uncounted(), Bytes::ZERO);
    }
}
