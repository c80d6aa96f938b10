//! Splits huge pages and frees the parts that were never written.
//!
//! `MADV_COLD` on the first page of a huge page makes the kernel split it (mm/madvise.c). The contents of the
//! 512 pages do not change. Since 6.12 the split maps pages that are all zeroes to the zero page and frees
//! them. On older kernels this module finds such pages and pages them out if swap allows: pages of one
//! repeated value take no room in zram. The target never executes `MADV_DONTNEED`, `MADV_FREE` or
//! `MADV_REMOVE` for us.

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::process_madvise::Advice;
use thermo_kernel::process_vm;
use thermo_targets::{Inspector, Process};
use thermo_units::{AddrRange, Bytes, PAGE_SIZE};

use super::plan::{RangePlan, Task};
use super::range_ops;
use super::state::Actor;
use super::units::{HUGE_PAGE, first_page_views};

impl Actor {
    /// Splits the huge pages in the kept memory of `plan`. Units without a huge page count as applied.
    pub(super) fn split(&mut self, task: &Task<'_>, plan: RangePlan, mut pte: Inspector<'_>) -> Applied {
        let RangePlan { mut applied, kept } = plan;
        if kept.is_empty() {
            return applied;
        }
        let units = range_ops::aligned_units(&kept, HUGE_PAGE);
        // A unit that is only partly in the range is not split: the rest of it may be hot.
        applied.skip(
            Skip::Unadvisable,
            range_ops::sum(&kept).saturating_sub(range_ops::sum(&units)),
        );
        let before = first_page_views(task.process, &units, pte.as_deref_mut());
        let can_see = before.len() == units.len();
        // Without page tables, the first page of every unit is advised, which does no harm to small pages.
        let huge: Vec<AddrRange> = if can_see {
            let huge = units.iter().zip(&before).filter(|(_, view)| view.is_huge());
            huge.map(|(unit, _)| *unit).collect()
        } else {
            units.clone()
        };
        let mut first_pages = RangePlan {
            applied: Applied::default(),
            kept: huge.iter().map(first_page).collect(),
        };
        self.advise(task.process, Advice::Cold, std::slice::from_mut(&mut first_pages));
        // One advised page stands for its unit.
        let of_units = |pages: Bytes| Bytes(pages.0 * (HUGE_PAGE.0 / PAGE_SIZE));
        for (why, bytes) in first_pages.applied.skipped {
            applied.skip(why, of_units(bytes));
        }
        let requested = of_units(first_pages.applied.applied);
        applied.applied += range_ops::sum(&units) - range_ops::sum(&huge) + requested;
        applied.error = first_pages.applied.error;
        if self.dry_run {
            return applied;
        }
        if can_see {
            let after = first_page_views(task.process, &huge, pte);
            let split: Vec<AddrRange> = huge
                .iter()
                .zip(&after)
                .filter(|(_, view)| !view.is_huge())
                .map(|(unit, _)| *unit)
                .collect();
            applied.changed = Some(range_ops::sum(&split));
            self.reclaim_zero_pages(task.process, &split);
        } else {
            self.reclaim_zero_pages(task.process, &huge);
        }
        applied
    }

    /// Pages out the zero-filled pages of units that were just split, on kernels that did not free them.
    fn reclaim_zero_pages(&mut self, process: &Process, split: &[AddrRange]) {
        if self.huge.split_frees || !self.guard.swap_allows(&self.root) {
            return;
        }
        let mut bytes = vec![0; HUGE_PAGE.0 as usize];
        for unit in split.iter().take_while(|_| process.is_alive()) {
            let read = process_vm::read(process.pid, unit.start, &mut bytes).unwrap_or(0);
            // The number may name another process by now, whose content says nothing.
            if !process.is_alive() {
                return;
            }
            let mut zeroes = RangePlan {
                applied: Applied::default(),
                kept: zero_pages(*unit, &bytes[..read]).into(),
            };
            self.advise(process, Advice::PageOut, std::slice::from_mut(&mut zeroes));
        }
    }
}

fn first_page(unit: &AddrRange) -> AddrRange {
    AddrRange::new(unit.start.0, unit.start.0 + PAGE_SIZE)
}

/// The pages of `unit` that are all zeroes; `bytes` is its content.
fn zero_pages(unit: AddrRange, bytes: &[u8]) -> Vec<AddrRange> {
    const ZEROES: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];
    let mut zero = Vec::new();
    for (n, _) in bytes
        .chunks_exact(ZEROES.len())
        .enumerate()
        .filter(|(_, page)| **page == ZEROES)
    {
        let start = unit.start.0 + n as u64 * PAGE_SIZE;
        AddrRange::new(start, start + PAGE_SIZE).coalesce_into(&mut zero);
    }
    zero
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_pages_finds_only_whole_pages() {
        let page = PAGE_SIZE as usize;
        let mut bytes = vec![0; 4 * page + 100];
        bytes[page + 7] = 1;
        let unit = AddrRange::new(0x20_0000, 0x40_0000);
        let at = |n: u64| 0x20_0000 + n * PAGE_SIZE;
        assert_eq!(
            zero_pages(unit, &bytes),
            [AddrRange::new(at(0), at(1)), AddrRange::new(at(2), at(4))]
        );
        assert_eq!(zero_pages(unit, &[]), []);
    }
}
