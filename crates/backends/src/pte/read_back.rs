//! Reading accessed bits again after they were cleared: a bit that is still set is of a page that is accessed all the time,
//! or of one that the kernel passed over without saying so.

use thermo_engine::scan::ScanChunk;
use thermo_kernel::pagemap::Pagemap;
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

use super::part::{Part, each_part, pages_of};
use super::state::PteTracker;
use super::stripe::Stripe;
use super::target_scan::TargetScan;

/// Of how many pages whose marks stayed frames' flags are read: pages that wait to be put on a list are a few for each CPU;
/// more are pages that are touched all the time.
const FLAGS_READ: u64 = 64;

impl PteTracker {
    /// Reads again the bits that were cleared, and books as unknown the pages whose bit is still set because the kernel passed
    /// over them. Folios are asked again as well, for somebody else may have taken a mark that the kernel left alone. None:
    /// the process is gone.
    pub(super) fn read_back_stripe(
        &mut self,
        process: &Process,
        scan: &mut TargetScan,
        stripe: &Stripe,
        piece: &mut ScanChunk,
    ) -> Option<()> {
        let stretches = || stripe.ranges.stretches.iter().map(|stretch| stretch.range);
        let start = stretches().map(|range| range.start).min()?;
        let end = stretches().map(|range| range.end).max()?;
        let between = AddrRange { start, end };
        self.open_pagemap(process);
        let pagemap = self.pagemap.as_ref().map(|(_, pagemap)| pagemap);
        // Pages that cannot be read are not known to be the process's own.
        let is_own = |addr| {
            let page = pagemap.and_then(|pagemap| pagemap.page(addr).ok());
            page.is_some_and(|page| page.is_exclusive())
        };
        let mut still_marked: Vec<AddrRange> = Vec::new();
        let mut huge: Vec<AddrRange> = Vec::new();
        let looked = &mut |part: &Part<'_>| {
            // A page between them that is marked by now was touched since: that is for the next pass.
            let cleared = stripe.cleared(part.table);
            let mut leaves = part.leaves.without(&cleared.map(|word| !word));
            if part.table.level == 0 {
                let base = part.table.base;
                let own = scan.exclusive.known(base, &leaves.touched(), is_own);
                leaves = leaves.without(&own);
            }
            part.each_of(leaves.each_touched(), between, &mut |at, leaf| match leaf.level {
                0 => at.join_onto(&mut still_marked),
                _ => huge.push(at),
            });
        };
        each_part(&mut self.tables, process.pid, between, stripe.folios, looked).ok()?;
        for at in huge {
            // All its pages are mapped alike, but for those that a child has copied by now.
            let middle = Addr(at.start.0 + at.len().0 / 2).align_down();
            let asked = [at.start, middle, Addr(at.end.0 - PAGE_SIZE)];
            if !asked.into_iter().all(is_own) {
                pages_of(at).for_each(|addr| piece.set_unknown(addr));
            }
        }
        self.judge_still_marked(scan, &still_marked, piece);
        Some(())
    }

    /// Tells pages that are touched all the time from those that the kernel passed over.
    fn judge_still_marked(
        &mut self,
        scan: &mut TargetScan,
        still_marked: &[AddrRange],
        piece: &mut ScanChunk,
    ) {
        let pages = still_marked
            .iter()
            .map(|run| run.len().0 / PAGE_SIZE)
            .sum::<u64>();
        let may_wait = pages <= FLAGS_READ;
        for run in still_marked {
            self.pages.clear();
            if let Some((_, pagemap)) = &self.pagemap {
                drop(pagemap.read(*run, &mut self.pages));
            }
            for (nth, addr) in pages_of(*run).enumerate() {
                let page = self.pages.get(nth).copied().unwrap_or_default();
                if !page.is_exclusive() {
                    if let Some(pfn) = page.pfn() {
                        scan.uncleared.add(addr, pfn);
                    }
                    piece.set_unknown(addr);
                } else if may_wait && self.is_on_no_list(page.pfn()) {
                    piece.set_unknown(addr);
                } else {
                    scan.exclusive.add(addr);
                }
            }
        }
    }

    /// Opens what tells of each page of the process, unless it is open since its pass began.
    fn open_pagemap(&mut self, process: &Process) {
        if self.pagemap.as_ref().is_none_or(|(id, _)| *id != process.id) {
            let opened = Pagemap::open(&self.root, process.pid).ok();
            self.pagemap = opened.map(|pagemap| (process.id, pagemap));
        }
    }

    /// Whether a frame is on no list of the kernel's, which `MADV_COLD` passes over.
    fn is_on_no_list(&self, pfn: Option<u64>) -> bool {
        let (Some(pfn), Some(frames)) = (pfn, &self.frames) else {
            return false;
        };
        frames
            .flags(pfn)
            .is_ok_and(|flags| !flags.is_lru() || flags.is_zero_page())
    }
}
