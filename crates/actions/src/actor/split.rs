//! Splitting huge pages, and giving back what of them was never written.
//!
//! `MADV_COLD` on the first page of a huge page makes the kernel split it (mm/madvise.c): nothing is lost, the 512
//! pages go on as they are. Since 6.12 the kernel maps those that hold zeroes alone to its page of zeroes while it
//! splits, and frees them. Before, such pages are looked for here and paged out where there is swap: pages of one
//! value take no room in zram. The target is never made to run `MADV_DONTNEED`, `FREE` or `REMOVE`.

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::process_madvise::Advice;
use thermo_kernel::process_vm;
use thermo_targets::{Inspector, Process};
use thermo_units::{AddrRange, Bytes, PAGE_SIZE};

use super::plan::{RangePlan, Task};
use super::spans;
use super::state::Actor;
use super::units::{HUGE_PAGE, views};

impl Actor {
    /// Splits the huge pages in what `plan` keeps. What holds none counts as applied.
    pub(super) fn split(&mut self, task: &Task<'_>, plan: RangePlan, mut pte: Inspector<'_>) -> Applied {
        let RangePlan { mut applied, kept } = plan;
        if kept.is_empty() {
            return applied;
        }
        let units = spans::aligned_units(&kept, HUGE_PAGE);
        // Of a huge page that is cold in a part only nothing is known that would tell to split it.
        applied.skip(
            Skip::Unadvisable,
            spans::sum(&kept).saturating_sub(spans::sum(&units)),
        );
        let before = views(task.process, &units, pte.as_deref_mut());
        let can_see = before.len() == units.len();
        // Where it cannot be seen, one page of each is advised: no harm to small ones.
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
        // A page was advised for each unit.
        let of_units = |pages: Bytes| Bytes(pages.0 * (HUGE_PAGE.0 / PAGE_SIZE));
        for (why, bytes) in first_pages.applied.skipped {
            applied.skip(why, of_units(bytes));
        }
        let asked = of_units(first_pages.applied.applied);
        applied.applied += spans::sum(&units) - spans::sum(&huge) + asked;
        if can_see {
            let after = views(task.process, &huge, pte);
            let split: Vec<AddrRange> = huge
                .iter()
                .zip(&after)
                .filter(|(_, view)| !view.is_huge())
                .map(|(unit, _)| *unit)
                .collect();
            applied.changed = Some(spans::sum(&split));
            self.give_back(task.process, &split);
        } else {
            self.give_back(task.process, &huge);
        }
        applied
    }

    /// Pages out what is all zeroes in units that were just split, on kernels that did not free it.
    fn give_back(&mut self, process: &Process, split: &[AddrRange]) {
        if self.huge.split_frees || !self.guard.swap_allows(&self.root) {
            return;
        }
        let mut bytes = vec![0; HUGE_PAGE.0 as usize];
        for unit in split {
            let read = process_vm::read(process.pid, unit.start, &mut bytes).unwrap_or(0);
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

/// The pages of `unit`, whose contents are `bytes`, that hold nothing.
fn zero_pages(unit: AddrRange, bytes: &[u8]) -> Vec<AddrRange> {
    const ZEROES: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];
    let mut zero = Vec::new();
    for (n, _) in bytes
        .chunks_exact(ZEROES.len())
        .enumerate()
        .filter(|(_, page)| **page == ZEROES)
    {
        let start = unit.start.0 + n as u64 * PAGE_SIZE;
        AddrRange::new(start, start + PAGE_SIZE).join_onto(&mut zero);
    }
    zero
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_of_zeroes_are_given_back() {
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
