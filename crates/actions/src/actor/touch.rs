//! Moving pages up on the LRU lists: the kernel counts a page that is read through `process_vm_readv` as used,
//! and one that is used twice is active. It brings swapped-out pages in, so only those present are read.
//!
//! With generations (MGLRU) uses move nothing. They are counted in the page, and looked at when it is its turn to go: one
//! that was used five times (`sort_folio()` in mm/vmscan.c) goes to the next generation instead, once. Fewer uses keep
//! it only where enough of what was paged out has come back since.
//!
//! Huge pages mapped as such are the exception: for those the kernel sets the accessed mark of the page table and leaves
//! lists alone (`touch_pmd()` in mm/huge_memory.c), and no other call moves them from outside. Reading them would do
//! nothing but make them look touched to trackers, so where they can be told (`/proc/kpageflags`, root) they are left
//! alone and counted as unadvisable. Those that are hot have the mark anyway.

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_kernel::process_vm::touch_all;
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::spans;
use super::units::HUGE_PAGE;

/// How much is looked at and touched between two questions whether to stop: whole huge pages.
const STEP: Bytes = Bytes::mib(4);
const PAGES_OF_HUGE: usize = (HUGE_PAGE.0 / PAGE_SIZE) as usize;

/// What is present of some memory.
#[derive(Debug, Default, PartialEq, Eq)]
struct Present {
    /// Pages by themselves.
    small: Vec<Addr>,
    /// In huge pages.
    huge: Bytes,
}

/// Touches the present pages of `ranges`, each so many `times`.
pub(super) fn touch_times(
    times: usize,
    process: &Process,
    (pagemap, frames): (&Pagemap, Option<&PageFrames>),
    ranges: &[AddrRange],
    stop: &mut dyn FnMut() -> Option<Skip>,
    applied: &mut Applied,
) {
    let steps = steps(ranges);
    let mut pages = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        let why = if process.is_alive() {
            stop()
        } else {
            Some(Skip::TargetGone)
        };
        if let Some(why) = why {
            applied.skip(why, spans::sum(&steps[n..]));
            return;
        }
        // What cannot be read is taken for absent.
        if pagemap.read(*step, &mut pages).is_err() {
            pages.clear();
        }
        let present = present(step.start, &pages, &|pfn| is_huge(frames, pfn));
        let there = bytes(present.small.len());
        applied.skip(Skip::Unadvisable, present.huge);
        applied.skip(Skip::NotPresent, step.len().saturating_sub(there + present.huge));
        let refused = bytes(touch_all(process.pid, &present.small, times));
        applied.skip(Skip::Refused, refused);
        applied.applied += there.saturating_sub(refused);
    }
}

/// `ranges` cut where whole huge pages end.
fn steps(ranges: &[AddrRange]) -> Vec<AddrRange> {
    let of_one = |range: &AddrRange| {
        let first = Addr(range.start.0.next_multiple_of(STEP.0)).min(range.end);
        let (head, rest) = (
            AddrRange { end: first, ..*range },
            AddrRange {
                start: first,
                ..*range
            },
        );
        let head = Some(head).filter(|head| !head.is_empty());
        head.into_iter().chain(spans::cut(&[rest], STEP))
    };
    ranges.iter().flat_map(of_one).collect()
}

/// What is present of the `pages` from `start` on.
fn present(start: Addr, pages: &[Page], is_huge: &dyn Fn(u64) -> bool) -> Present {
    let mut present = Present::default();
    let mut nth = 0;
    while let Some(page) = pages.get(nth) {
        let addr = start + bytes(nth);
        let of_huge = pages.get(nth..nth + PAGES_OF_HUGE).unwrap_or_default();
        if addr.0.is_multiple_of(HUGE_PAGE.0) && is_one_block(of_huge, is_huge) {
            present.huge += HUGE_PAGE;
            nth += PAGES_OF_HUGE;
            continue;
        }
        if page.is_present() {
            present.small.push(addr);
        }
        nth += 1;
    }
    present
}

/// Whether these pages lie one after the other in a huge page. Asked of few frames: a look costs as much as a touch.
fn is_one_block(pages: &[Page], is_huge: &dyn Fn(u64) -> bool) -> bool {
    let Some(first) = pages.first().and_then(|page| page.pfn()) else {
        return false;
    };
    let in_order = |(pfn, page): (u64, &Page)| page.pfn() == Some(pfn);
    (first..).zip(pages).all(in_order) && is_huge(first)
}

fn is_huge(frames: Option<&PageFrames>, pfn: u64) -> bool {
    let flags = frames.and_then(|frames| frames.flags(pfn).ok());
    flags.is_some_and(|flags| {
        flags.is_thp() && flags.is_compound_head() && pfn.is_multiple_of(PAGES_OF_HUGE as u64)
    })
}

const fn bytes(pages: usize) -> Bytes {
    Bytes(pages as u64 * PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_where_huge_pages_do() {
        let mib = |n: u64| n << 20;
        let found = steps(&[AddrRange::new(mib(1), mib(13)), AddrRange::new(mib(17), mib(18))]);
        let expected = [(1, 4), (4, 8), (8, 12), (12, 13), (17, 18)];
        assert_eq!(
            found,
            expected.map(|(start, end)| AddrRange::new(mib(start), mib(end)))
        );
        assert_eq!(steps(&[AddrRange::new(0, mib(4))]).len(), 1);
    }

    #[test]
    fn huge_pages_are_told_from_neighbours() {
        let at = |pfn: u64| Page::from_bits(1 << 63 | pfn);
        let block: Vec<Page> = (1024..1024 + 512).map(at).collect();
        let start = Addr(64 << 20);
        let found = present(start, &block, &|pfn| pfn == 1024);
        assert_eq!((found.small.len(), found.huge), (0, HUGE_PAGE));
        let small =
            |start: Addr, pages: &[Page], is_huge: bool| present(start, pages, &|_| is_huge).small.len();
        // Neighbours in memory that are no huge page; one that is mapped elsewhere, page by page; one with a hole; one
        // that is cut short by the end of what is looked at.
        assert_eq!(small(start, &block, false), 512);
        assert_eq!(small(start + bytes(1), &block, true), 512);
        let mut holed = block.clone();
        holed[7] = Page::default();
        assert_eq!(small(start, &holed, true), 511);
        assert_eq!(small(start, &block[..511], true), 511);
        assert_eq!(present(start, &[], &|_| true), Present::default());
    }
}
