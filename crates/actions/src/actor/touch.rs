//! Moves pages up on the LRU lists by reading them.
//!
//! The kernel marks a page that is read through `process_vm_readv` as used; a page used twice becomes active.
//! A read would bring swapped-out pages in, so only present pages are read.
//!
//! With MGLRU a use does not move the page. Uses are counted in the folio, and reclaim checks the count: a
//! folio used five times is moved once to the next generation instead of being evicted (`sort_folio()` in
//! mm/vmscan.c). Fewer uses protect a folio only if enough evicted memory was refaulted.
//!
//! Huge pages with a huge mapping are an exception: the kernel only sets the accessed bit of the page table
//! (`touch_pmd()` in mm/huge_memory.c), and no other call moves such pages from outside. A read would only
//! make them look accessed to monitors. So huge pages are skipped as unadvisable where they can be recognised
//! (`/proc/kpageflags`, root). Hot huge pages have their accessed bit set anyway.

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_kernel::process_vm::Unread;
use thermo_kernel::refusal::{Call, Refusal};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::range_ops;
use super::refused::skip_refused;
use super::units::HUGE_PAGE;

/// Bytes processed between two checks of the cancel flag; a multiple of the huge page size.
const STEP: Bytes = Bytes::mib(4);
const PAGES_PER_HUGE: usize = (HUGE_PAGE.0 / PAGE_SIZE) as usize;

/// The present memory of a range.
#[derive(Debug, Default, PartialEq, Eq)]
struct Present {
    /// Base pages.
    small: Vec<Addr>,
    /// Bytes in huge pages.
    huge: Bytes,
}

/// Reads each present page of `ranges` with `read`, which returns the pages that it could not read.
pub(super) fn touch_present(
    read: &dyn Fn(&[Addr]) -> Unread,
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
            applied.skip(why, range_ops::sum(&steps[n..]));
            return;
        }
        // Unreadable memory counts as not present.
        if pagemap.read(*step, &mut pages).is_err() {
            pages.clear();
        }
        let present = present(step.start, &pages, &|pfn| is_huge(frames, pfn));
        let small = bytes(present.small.len());
        applied.skip(Skip::Unadvisable, present.huge);
        applied.skip(Skip::NotPresent, step.len().saturating_sub(small + present.huge));
        let unread = read(&present.small);
        for (errno, nr) in unread.iter() {
            let call = Call::ReadMemory;
            skip_refused(applied, Refusal { call, errno }, bytes(nr));
        }
        applied.applied += small.saturating_sub(bytes(unread.total()));
    }
}

/// `ranges` split at multiples of [`STEP`].
pub(super) fn steps(ranges: &[AddrRange]) -> Vec<AddrRange> {
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
        head.into_iter().chain(range_ops::cut(&[rest], STEP))
    };
    ranges.iter().flat_map(of_one).collect()
}

/// The present memory of `pages`, the first of which is at `start`.
fn present(start: Addr, pages: &[Page], is_huge: &dyn Fn(u64) -> bool) -> Present {
    let mut present = Present::default();
    let mut nth = 0;
    while let Some(page) = pages.get(nth) {
        let addr = start + bytes(nth);
        let unit = pages.get(nth..nth + PAGES_PER_HUGE).unwrap_or_default();
        if addr.0.is_multiple_of(HUGE_PAGE.0) && is_huge_page(unit, is_huge) {
            present.huge += HUGE_PAGE;
            nth += PAGES_PER_HUGE;
            continue;
        }
        if page.is_present() {
            present.small.push(addr);
        }
        nth += 1;
    }
    present
}

/// Whether the frames of these pages form one huge page. Only the first frame's flags are read, because
/// reading the flags of a frame costs as much as touching its page.
pub(super) fn is_huge_page(pages: &[Page], is_huge: &dyn Fn(u64) -> bool) -> bool {
    let Some(first) = pages.first().and_then(|page| page.pfn()) else {
        return false;
    };
    let in_order = |(pfn, page): (u64, &Page)| page.pfn() == Some(pfn);
    (first..).zip(pages).all(in_order) && is_huge(first)
}

pub(super) fn is_huge(frames: Option<&PageFrames>, pfn: u64) -> bool {
    let flags = frames.and_then(|frames| frames.flags(pfn).ok());
    flags.is_some_and(|flags| {
        flags.is_thp() && flags.is_compound_head() && pfn.is_multiple_of(PAGES_PER_HUGE as u64)
    })
}

const fn bytes(pages: usize) -> Bytes {
    Bytes(pages as u64 * PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_at_huge_page_borders() {
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
    fn present_separates_huge_and_small_pages() {
        let at = |pfn: u64| Page::from_bits(1 << 63 | pfn);
        let block: Vec<Page> = (1024..1024 + 512).map(at).collect();
        let start = Addr(64 << 20);
        let found = present(start, &block, &|pfn| pfn == 1024);
        assert_eq!((found.small.len(), found.huge), (0, HUGE_PAGE));
        let small =
            |start: Addr, pages: &[Page], is_huge: bool| present(start, pages, &|_| is_huge).small.len();
        // Contiguous frames that are not a huge page; a huge page that is not aligned in the address space;
        // one with a hole; one cut off at the end of the range.
        assert_eq!(small(start, &block, false), 512);
        assert_eq!(small(start + bytes(1), &block, true), 512);
        let mut holed = block.clone();
        holed[7] = Page::default();
        assert_eq!(small(start, &holed, true), 511);
        assert_eq!(small(start, &block[..511], true), 511);
        assert_eq!(present(start, &[], &|_| true), Present::default());
    }
}
