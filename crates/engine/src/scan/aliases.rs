//! Memory that one target maps more than once, as collectors with several views of one heap do. Each page
//! counts once: where one mapping holds it, the others count as not resident.

use std::sync::Arc;

use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::chunk::{ScanChunk, ScanResult};
use super::page_states::{CHUNK, PageStates};

/// A mapping of memory that another mapping of the target has as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    /// Its addresses.
    pub range: AddrRange,
    /// The address at which the other mapping has the same memory.
    pub first: Addr,
}

impl Alias {
    /// Where the other mapping has the page at `addr`.
    fn other(&self, addr: Addr) -> Addr {
        Addr(self.first.0 + (addr - self.range.start).0)
    }
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

    /// Removes from `chunk`, which was just scanned, the pages that the target has in another mapping. A page
    /// that was idle there, but not here, counts here.
    pub(crate) fn remove_from(&mut self, chunk: &mut ScanChunk, states: &mut PageStates) {
        let range = chunk.range();
        let aliases = Arc::clone(&self.aliases);
        let first = aliases.partition_point(|alias| alias.range.end <= range.start);
        let overlapping = aliases[first..]
            .iter()
            .take_while(|alias| alias.range.start < range.end);
        for alias in overlapping {
            let pages = alias.range.intersection(&range).unwrap_or_default();
            let mut at = pages.start;
            while at < pages.end {
                // Up to the next chunk of the other mapping.
                let there = alias.other(at);
                let end = pages.end.min(at + Bytes(CHUNK - there.0 % CHUNK));
                let part = AddrRange { start: at, end };
                for idle in self.remove_part(alias, part, chunk, states) {
                    states.set_absent(page(idle));
                }
                at = end;
            }
        }
    }

    /// Removes the pages of `part`, which lies in one chunk of the other mapping, except those that are idle
    /// there only. Returns where the other mapping has these.
    fn remove_part(
        &mut self,
        alias: &Alias,
        part: AddrRange,
        chunk: &mut ScanChunk,
        states: &PageStates,
    ) -> Vec<Addr> {
        let mut idle_there = Vec::new();
        let Some(known) = states.chunk_at(alias.other(part.start)) else {
            return idle_there;
        };
        for addr in (part.start.0..part.end.0).step_by(PAGE_SIZE as usize).map(Addr) {
            let result = chunk.get(addr);
            let is_idle = known.is_idle(alias.other(addr));
            let Some(is_idle) = is_idle.filter(|_| result != ScanResult::Absent) else {
                continue;
            };
            self.this_pass += Bytes(PAGE_SIZE);
            match is_idle && result != ScanResult::Idle {
                true => idle_there.push(alias.other(addr)),
                false => chunk.unset_range(page(addr)),
            }
        }
        idle_there
    }

    /// Ends a pass.
    pub(crate) fn end_pass(&mut self) {
        self.last_pass = std::mem::take(&mut self.this_pass);
    }

    /// The bytes that a complete pass did not count.
    pub(crate) fn uncounted(&self) -> Bytes {
        let all: Bytes = self.aliases.iter().map(|alias| alias.range.len()).sum();
        self.this_pass.max(self.last_pass).min(all)
    }
}

const fn page(addr: Addr) -> AddrRange {
    AddrRange::new(addr.0, addr.0 + PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
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
        aliases.remove_from(&mut chunk, &mut states);
        let is_resident = |page: u64| chunk.get(Addr(page * PAGE_SIZE)) != ScanResult::Absent;
        let resident: Vec<u64> = (998..1014).filter(|page| is_resident(*page)).collect();
        assert_eq!(resident, [999, 1004, 1005, 1006, 1007, 1008, 1009, 1010]);
        assert_eq!(aliases.uncounted(), Bytes(4 * PAGE_SIZE));
        aliases.end_pass();
        assert_eq!(aliases.uncounted(), Bytes(4 * PAGE_SIZE));
        aliases.end_pass();
        assert_eq!(aliases.uncounted(), Bytes::ZERO);
    }

    #[test]
    fn page_that_is_only_accessed_in_its_second_mapping_counts_there() {
        let mut states = PageStates::new(true);
        for pass in 0..9 {
            states.begin_pass(Nanos::secs(pass));
            let mut idle = ScanChunk::default();
            idle.reset(pages(0, PAGES));
            idle.set_range(pages(0, PAGES), false);
            states.update(&idle, Nanos::secs(pass));
            states.end_pass(Nanos::secs(pass + 1));
        }
        let mut aliases = Aliases::default();
        aliases.set(Arc::from([Alias {
            range: pages(1000, PAGES),
            first: Addr(0),
        }]));
        let mut chunk = scanned(pages(1000, PAGES), pages(1000, 2));
        aliases.remove_from(&mut chunk, &mut states);
        assert_eq!(chunk.get(pages(1001, 1).start), ScanResult::Accessed);
        let known = states.chunk_at(Addr(0)).unwrap();
        let at = |page: u64| known.is_idle(Addr(page * PAGE_SIZE));
        assert_eq!([at(0), at(1), at(2)], [None, None, Some(true)]);
    }
}
