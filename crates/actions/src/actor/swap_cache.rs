//! Pages that left the page tables of a process but not memory.
//!
//! A swap device may refuse a page: zram does when it has reached its `mem_limit`, or when no memory is free.
//! The kernel then leaves the page in the swap cache, changed and without a mapping: the process counts it as
//! swapped, and nothing was saved. Such pages are found by their frames, which the pagemap showed before the
//! page-out: afterwards the frame is in the swap cache, changed, and mapped by nobody. A frame that was freed
//! and taken by another such page in between is counted too.
//!
//! Frames are only looked up when zram counts more failed writes than before. Without the right to see frames
//! (CAP_SYS_ADMIN), the growth of this count is taken, which includes failed writes of other programs.
//!
//! A disk finishes its writes later. Pages that it has not written yet count as paged out.

use std::path::Path;

use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::zram;
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::plan::RangePlan;
use super::range_ops;

/// Why the bytes are still in memory.
pub(super) const SENTENCE: &str = "the swap device did not take all pages: zram refuses them when it has \
                                   reached its mem_limit or no memory is free. They stay in memory, in the swap \
                                   cache";
/// Bytes per read of the pagemap.
const CHUNK: Bytes = Bytes::mib(2);

/// The state before a page-out.
pub(super) struct Before {
    failed_writes: u64,
    /// The present pages and their frames, ascending by address within each plan; `None` where they are not
    /// known.
    frames: Option<Vec<(Addr, u64)>>,
}

impl Before {
    /// Notes the frames of the memory that `plans` keep, up to `max` bytes. `None` without zram.
    pub(super) fn read(
        root: &Path,
        pagemap: &Pagemap,
        has_frames: bool,
        plans: &[RangePlan],
        max: Bytes,
    ) -> Option<Self> {
        let failed_writes = zram::failed_writes(root)?;
        let total: Bytes = plans.iter().map(|plan| range_ops::sum(&plan.kept)).sum();
        let frames = (has_frames && total <= max).then(|| {
            let kept = plans.iter().flat_map(|plan| plan.kept.iter());
            kept.flat_map(|range| frames_of(pagemap, *range)).collect()
        });
        Some(Self {
            failed_writes,
            // Present pages without a frame number: it is hidden from us.
            frames: frames.and_then(|frames: Vec<(Addr, Option<u64>)>| {
                frames.into_iter().map(|(addr, pfn)| Some((addr, pfn?))).collect()
            }),
        })
    }

    /// For each of `plans`, the bytes that are in the swap cache although they were to be paged out; `left`
    /// are the bytes that each plan no longer maps.
    pub(super) fn stuck(
        &self,
        root: &Path,
        pagemap: &Pagemap,
        frames: Option<&PageFrames>,
        plans: &[RangePlan],
        left: &[Bytes],
    ) -> Vec<Bytes> {
        let failed = zram::failed_writes(root).map_or(0, |now| now.saturating_sub(self.failed_writes));
        if failed == 0 {
            return vec![Bytes::ZERO; plans.len()];
        }
        if let Some((known, frames)) = self.frames.as_ref().zip(frames) {
            let of_plan = |plan: &RangePlan| stuck_pages(pagemap, frames, &plan.kept, known);
            return plans.iter().map(of_plan).collect();
        }
        let mut rest = Bytes(failed.saturating_mul(PAGE_SIZE));
        let of_plan = |left: &Bytes| {
            let stuck = rest.min(*left);
            rest = rest.saturating_sub(stuck);
            stuck
        };
        left.iter().map(of_plan).collect()
    }
}

fn frames_of(pagemap: &Pagemap, range: AddrRange) -> Vec<(Addr, Option<u64>)> {
    let (mut found, mut pages) = (Vec::new(), Vec::new());
    for chunk in range_ops::pieces(&[range], CHUNK) {
        // Unreadable memory counts as not present.
        if pagemap.read(chunk, &mut pages).is_err() {
            continue;
        }
        let addrs = (chunk.start.0..chunk.end.0).step_by(PAGE_SIZE as usize).map(Addr);
        let present = addrs.zip(&pages).filter(|(_, page)| page.is_present());
        found.extend(present.map(|(addr, page)| (addr, page.pfn())));
    }
    found
}

/// Bytes of `kept` that are swapped now, and whose frame is still in memory for them.
fn stuck_pages(pagemap: &Pagemap, frames: &PageFrames, kept: &[AddrRange], known: &[(Addr, u64)]) -> Bytes {
    let (mut stuck, mut pages) = (0, Vec::new());
    for chunk in range_ops::pieces(kept, CHUNK) {
        if pagemap.read(chunk, &mut pages).is_err() {
            continue;
        }
        let first = known.partition_point(|(addr, _)| *addr < chunk.start);
        let within = known.iter().skip(first).take_while(|(addr, _)| *addr < chunk.end);
        let is_stuck = |(addr, pfn): &&(Addr, u64)| {
            let nth = ((*addr - chunk.start).0 / PAGE_SIZE) as usize;
            let is_swapped = pages.get(nth).is_some_and(|page| page.is_swapped());
            is_swapped
                && frames
                    .flags(*pfn)
                    .is_ok_and(|flags| flags.is_swap_cache() && flags.is_dirty() && !flags.is_mapped())
        };
        stuck += within.filter(is_stuck).count() as u64;
    }
    Bytes(stuck * PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::fs;

    use thermo_engine::ops::Applied;

    use super::*;
    use crate::fake;

    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const SWAP_CACHE: u64 = 1 << 13;
    const DIRTY: u64 = 1 << 4;
    const MAPPED: u64 = 1 << 11;

    fn write(root: &Path, name: &str, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        fs::write(root.join("proc").join(name), bytes).unwrap();
    }

    fn set_failed_writes(root: &Path, nr: u64) {
        let device = root.join("sys/block/zram3");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("io_stat"), format!("0 {nr} 0 9\n")).unwrap();
    }

    fn plans() -> [RangePlan; 2] {
        let plan = |from: u64, to: u64| RangePlan {
            applied: Applied::default(),
            kept: [AddrRange::new(from << 12, to << 12)].into_iter().collect(),
        };
        [plan(0, 4), plan(4, 6)]
    }

    /// Six pages in the frames 8 to 13, of which the first five are swapped out afterwards. Returns the stuck
    /// bytes of two plans.
    fn stuck(has_frames: bool, failed: u64) -> Vec<Bytes> {
        let root = fake::root(6, |page| PRESENT | (page + 8));
        set_failed_writes(root.path(), 7);
        let before = Pagemap::open(root.path(), fake::PID).unwrap();
        let before = Before::read(root.path(), &before, has_frames, &plans(), Bytes::mib(1)).unwrap();
        let of_process = format!("{}/pagemap", fake::PID);
        let after: Vec<u64> = (0..6)
            .map(|page| if page < 5 { SWAPPED } else { PRESENT | 13 })
            .collect();
        write(root.path(), &of_process, &after);
        let mut flags = [0; 14];
        // Stuck; freed; written but not dropped yet; mapped by another process; stuck; still present.
        let stuck = SWAP_CACHE | DIRTY;
        flags[8..].copy_from_slice(&[stuck, 0, SWAP_CACHE, stuck | MAPPED, stuck, stuck]);
        write(root.path(), "kpageflags", &flags);
        write(root.path(), "kpagecount", &[0; 14]);
        set_failed_writes(root.path(), 7 + failed);
        let frames = PageFrames::open(root.path()).unwrap();
        let pagemap = Pagemap::open(root.path(), fake::PID).unwrap();
        let left = [Bytes(4 * PAGE_SIZE), Bytes(PAGE_SIZE)];
        before.stuck(root.path(), &pagemap, Some(&frames), &plans(), &left)
    }

    #[test]
    fn frames_tell_which_pages_the_device_refused() {
        assert_eq!(stuck(true, 2), [Bytes(PAGE_SIZE); 2]);
        assert_eq!(stuck(true, 0), [Bytes::ZERO; 2], "no write failed");
    }

    #[test]
    fn without_frames_failed_writes_are_counted() {
        assert_eq!(stuck(false, 2), [Bytes(2 * PAGE_SIZE), Bytes::ZERO]);
        let all = [Bytes(4 * PAGE_SIZE), Bytes(PAGE_SIZE)];
        assert_eq!(stuck(false, 100), all, "not more than left the process");
    }

    #[test]
    fn without_zram_nothing_is_measured() {
        let root = fake::root(6, |_| PRESENT);
        let pagemap = Pagemap::open(root.path(), fake::PID).unwrap();
        assert!(Before::read(root.path(), &pagemap, true, &plans(), Bytes::mib(1)).is_none());
    }
}
