//! Reads accessed bits again after they were cleared. If a bit is still set, the page is accessed all the
//! time, or the kernel skipped the page without an error.

use thermo_engine::scan::ScanChunk;
use thermo_kernel::pagemap::{Pagemap, Window};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

use super::state::PteTracker;
use super::stripe::Stripe;
use super::table_part::{TablePart, for_each_table, pages_of};
use super::target_scan::TargetScan;

/// Maximum number of pages with a set bit for which frame flags are read. Pages that wait in a per-CPU batch
/// for an LRU list are few; more pages than this are accessed all the time.
const MAX_FLAG_READS: u64 = 64;

impl PteTracker {
    /// Reads the cleared bits again, and records as unknown the pages whose bit is still set because the
    /// kernel skipped them. Folios are checked again as well, since another monitor may have cleared a bit
    /// that the kernel skipped. `None`: the process has ended.
    pub(super) fn read_back_stripe(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        stripe: &Stripe,
        chunk: &mut ScanChunk,
    ) -> Option<()> {
        let ranges = || stripe.to_clear.ranges.iter().map(|range| range.range);
        let start = ranges().map(|range| range.start).min()?;
        let end = ranges().map(|range| range.end).max()?;
        let between = AddrRange { start, end };
        self.keep_pagemap_open(process);
        let window = self.pagemap.as_ref().map(|(_, pagemap)| Window::new(pagemap));
        // Pages that cannot be read are not known to be mapped exclusively.
        let is_exclusive = |addr| {
            let page = window.as_ref().and_then(|window| window.page(addr));
            page.is_some_and(|page| page.is_exclusive())
        };
        let mut still_set: Vec<AddrRange> = Vec::new();
        let mut huge_pages: Vec<AddrRange> = Vec::new();
        let on_table = &mut |part: &TablePart<'_>| {
            // A page in between whose bit is set by now was accessed since: the next pass counts it.
            let cleared = stripe.cleared(part.table);
            let mut leaves = part.leaves.without(&cleared.map(|word| !word));
            if part.table.level == 0 {
                let base = part.table.base;
                let exclusive = scan
                    .exclusive
                    .known(base, &leaves.accessed_or_young(), is_exclusive);
                leaves = leaves.without(&exclusive);
            }
            part.for_each_entry(
                leaves.accessed_entries(),
                between,
                &mut |at, leaf| match leaf.level {
                    0 => at.coalesce_into(&mut still_set),
                    _ => huge_pages.push(at),
                },
            );
        };
        for_each_table(&mut self.tables, process.pid, between, stripe.folios, on_table).ok()?;
        for at in huge_pages {
            // All pages of a huge page are mapped alike, except those that a child process has copied since.
            // Three samples suffice.
            let middle = Addr(at.start.0 + at.len().0 / 2).align_down();
            let samples = [at.start, middle, Addr(at.end.0 - PAGE_SIZE)];
            if samples.into_iter().all(is_exclusive) {
                continue;
            }
            match self.is_zero_page(at.start) {
                true => chunk.unset_range(at),
                false => pages_of(at).for_each(|addr| chunk.set_unknown(addr)),
            }
        }
        self.classify_still_set(scan, &still_set, chunk);
        Some(())
    }

    /// Whether the huge page at `addr` is the huge zero page, which the kernel does not count as resident.
    /// Newer kernels mark its entries as special, so that it is not read at all.
    fn is_zero_page(&self, addr: Addr) -> bool {
        let page = self.pagemap.as_ref().map(|(_, pagemap)| pagemap.page(addr));
        let pfn = page.and_then(Result::ok).and_then(|page| page.pfn());
        let frames = pfn.zip(self.frames.as_ref());
        frames.is_some_and(|(pfn, frames)| frames.flags(pfn).is_ok_and(|flags| flags.is_zero_page()))
    }

    /// Distinguishes pages that are accessed all the time from pages that the kernel skipped.
    fn classify_still_set(&mut self, scan: &mut TargetScan, still_set: &[AddrRange], chunk: &mut ScanChunk) {
        let pages = still_set
            .iter()
            .map(|range| range.len().0 / PAGE_SIZE)
            .sum::<u64>();
        let reads_flags = pages <= MAX_FLAG_READS;
        for range in still_set {
            self.pages.clear();
            if let Some((_, pagemap)) = &self.pagemap {
                drop(pagemap.read(*range, &mut self.pages));
            }
            for (nth, addr) in pages_of(*range).enumerate() {
                let page = self.pages.get(nth).copied().unwrap_or_default();
                if !page.is_exclusive() {
                    if let Some(pfn) = page.pfn() {
                        scan.uncleared.add(addr, pfn);
                    }
                    chunk.set_unknown(addr);
                } else if reads_flags && self.is_off_lru(page.pfn()) {
                    chunk.set_unknown(addr);
                } else {
                    scan.exclusive.add(addr);
                }
            }
        }
    }

    /// Opens the pagemap of the process, unless it is open since the pass began.
    fn keep_pagemap_open(&mut self, process: &Process) {
        if self.pagemap.as_ref().is_none_or(|(id, _)| *id != process.id) {
            let opened = Pagemap::open(&self.root, process.pid).ok();
            self.pagemap = opened.map(|pagemap| (process.id, pagemap));
        }
    }

    /// Whether a frame is on no LRU list. `MADV_COLD` skips such frames.
    pub(super) fn is_off_lru(&self, pfn: Option<u64>) -> bool {
        let (Some(pfn), Some(frames)) = (pfn, &self.frames) else {
            return false;
        };
        frames
            .flags(pfn)
            .is_ok_and(|flags| !flags.is_lru() || flags.is_zero_page())
    }
}
