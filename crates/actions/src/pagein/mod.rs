//! Brings memory back that is in swap: the undo of paging out.
//!
//! Swapped pages are found in the pagemap and read in batches, by one byte of each page
//! (`process_vm_readv`). That maps the page again, and frees its place in zram at once. `MADV_WILLNEED` alone
//! only reads pages into the swap cache: they stay unmapped and take memory twice. It is used before the
//! reads where swap is on disks, which are slow to read one page after the other.
//!
//! Only anonymous memory is found: the pagemap does not show swapped pages of shared memory. Pages of files
//! are read again when the program accesses them, or by the action `willneed`.

mod headroom;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use thermo_kernel::file::FileError;
use thermo_kernel::madvise_batch::madvise_batch;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_kernel::proc::{self, ProcError};
use thermo_kernel::process_madvise::{Advice, MAX_RANGES};
use thermo_kernel::process_vm::Unread;
use thermo_kernel::refusal::{Call, Cause, Refusal};
use thermo_kernel::{process_vm, swap};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE, Permille};

use self::headroom::Headroom;
pub use self::headroom::Shortage;
use crate::hint::Selection;

/// Swapped bytes per batch: the time between two checks of free memory and of the cancel flag.
const BATCH: Bytes = Bytes::mib(8);
/// Address space per pagemap read.
const WINDOW: Bytes = Bytes::mib(32);

/// Why bytes stay in swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stay {
    /// The mapping may not be read (`PROT_NONE`), so its pages cannot be touched.
    Unreadable,
    /// The kernel refused to read the pages for another reason.
    Refused(Refusal),
    /// The pages were paged out again meanwhile.
    PagedOutAgain,
    /// Too little memory is left.
    Shortage(Shortage),
    /// The cancel flag was set.
    Cancelled,
}

impl Stay {
    /// The name in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Refused(_) => "refused",
            Self::PagedOutAgain => "paged_out_again",
            Self::Shortage(Shortage::Machine { .. }) => "low_memory",
            Self::Shortage(Shortage::Group { .. }) => "cgroup_limit",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for Stay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable => f.write_str("their mappings may not be read"),
            Self::Refused(refusal) => match refusal.sentence() {
                Some(sentence) => f.write_str(&sentence),
                None => refusal.fmt(f),
            },
            Self::PagedOutAgain => f.write_str("paged out again meanwhile"),
            Self::Shortage(shortage) => shortage.fmt(f),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

/// What came back of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageInResult {
    /// Bytes in swap before. Zero if the process has ended.
    pub in_swap: Bytes,
    /// Bytes of these that are in memory now, as read from the pagemap.
    pub brought_back: Bytes,
    /// Bytes that are still in swap, by reason.
    pub stays: Vec<(Stay, Bytes)>,
}

/// The swapped memory of a process.
#[derive(Debug)]
pub struct Swapped {
    pagemap: Pagemap,
    ranges: Vec<AddrRange>,
}

impl Swapped {
    /// Finds it.
    ///
    /// # Errors
    /// The process is gone, or its memory may not be read.
    pub fn find(root: &Path, pid: u32) -> Result<Self, ProcError> {
        let path = proc::dir(root, pid).join("pagemap");
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => ProcError::Gone { pid },
            _ => FileError::new(&path, source).into(),
        };
        let pagemap = Pagemap::open(root, pid).map_err(failed)?;
        let (mut ranges, mut pages) = (Vec::new(), Vec::new());
        for mapping in Selection::default().ranges(root, pid)? {
            let mut start = mapping.start;
            while start < mapping.end {
                let window = AddrRange {
                    start,
                    end: mapping.end.min(start + WINDOW),
                };
                pagemap.read(window, &mut pages).map_err(failed)?;
                add_swapped(window, &pages, &mut ranges);
                start = window.end;
            }
        }
        Ok(Self { pagemap, ranges })
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.ranges.iter().map(AddrRange::len).sum()
    }

    /// Bytes of it that are in memory, and bytes that are in swap.
    fn count(&self) -> (Bytes, Bytes) {
        let (mut present, mut swapped) = (Bytes::ZERO, Bytes::ZERO);
        let mut pages = Vec::new();
        for range in &self.ranges {
            // Nothing can be read of a process that has ended: nothing of it is in memory or in swap.
            if self.pagemap.read(*range, &mut pages).is_err() {
                continue;
            }
            let bytes = |is: fn(Page) -> bool| {
                let found = pages.iter().filter(|page| is(**page)).count();
                Bytes(found as u64 * PAGE_SIZE)
            };
            present += bytes(Page::is_present);
            swapped += bytes(Page::is_swapped);
        }
        (present, swapped)
    }
}

fn add_swapped(window: AddrRange, pages: &[Page], ranges: &mut Vec<AddrRange>) {
    let addrs = (window.start.align_down().0..window.end.0).step_by(PAGE_SIZE as usize);
    for (start, _) in addrs.zip(pages).filter(|(_, page)| page.is_swapped()) {
        AddrRange::new(start, start + PAGE_SIZE).coalesce_into(ranges);
    }
}

/// Brings memory of processes back.
#[derive(Debug)]
pub struct PageIn<'a> {
    root: PathBuf,
    keep_available: Permille,
    cancel: &'a AtomicBool,
    /// Whether some swap is on a device that reads ahead better than it reads single pages.
    has_disk_swap: bool,
}

impl<'a> PageIn<'a> {
    /// Stops when less than `keep_available` of memory is available, of the machine or below the limit of the
    /// process's control group, and when `cancel` is set.
    ///
    /// # Errors
    /// The list of swap spaces cannot be read.
    pub fn new(root: &Path, keep_available: Permille, cancel: &'a AtomicBool) -> Result<Self, FileError> {
        Ok(Self {
            root: root.to_owned(),
            keep_available,
            cancel,
            has_disk_swap: swap::read(root)?.iter().any(|swap| !swap.is_zram()),
        })
    }

    /// Brings `swapped` of `process` back. `progress` gets the bytes handled so far.
    ///
    /// # Errors
    /// Free memory or the limits of the control group cannot be read: nothing more is brought back then.
    pub fn bring_back(
        &self,
        process: &Process,
        swapped: &Swapped,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<PageInResult, FileError> {
        let headroom = Headroom::new(&self.root, process.pid, self.keep_available)?;
        let (mut handled, mut unread, mut stopped) = (Bytes::ZERO, Unread::default(), None);
        for batch in batches(&swapped.ranges) {
            let size = batch.iter().map(AddrRange::len).sum();
            stopped = match self.cancel.load(Ordering::Relaxed) {
                true => Some(Stay::Cancelled),
                false => headroom.shortage(size)?.map(Stay::Shortage),
            };
            if stopped.is_some() {
                break;
            }
            let of_batch = self.read_in(process, &batch);
            of_batch.iter().for_each(|(errno, nr)| unread.add(errno, nr));
            handled += size;
            progress(handled);
        }
        if !process.is_alive() {
            return Ok(PageInResult::default());
        }
        let (brought_back, mut still) = swapped.count();
        let mut stays = Vec::new();
        let untouched = swapped.bytes().saturating_sub(handled);
        let refused = unread
            .iter()
            .map(|(errno, nr)| (Some(stay(errno)), Bytes(nr as u64 * PAGE_SIZE)));
        let first = [(stopped, untouched)].into_iter();
        let again = [(Some(Stay::PagedOutAgain), still)];
        for (why, bytes) in first.chain(refused).chain(again) {
            let bytes = bytes.min(still);
            still = still.saturating_sub(bytes);
            stays.extend(why.filter(|_| bytes > Bytes::ZERO).map(|why| (why, bytes)));
        }
        Ok(PageInResult {
            in_swap: swapped.bytes(),
            brought_back,
            stays,
        })
    }

    /// Reads `ranges` in. Returns the pages that cannot be read.
    fn read_in(&self, process: &Process, ranges: &[AddrRange]) -> Unread {
        if self.has_disk_swap {
            // The reads below come without it, only slower, so a refusal does not matter.
            let pidfd = &process.pidfd;
            let _ = madvise_batch(pidfd, ranges, Advice::WillNeed, BATCH, &mut |_| false);
        }
        let pages: Vec<Addr> = ranges
            .iter()
            .flat_map(|range| (range.start.0..range.end.0).step_by(PAGE_SIZE as usize))
            .map(Addr)
            .collect();
        process_vm::touch_all((process.pid, &process.pidfd), &pages, 1)
    }
}

/// Why pages stay that could not be read with this error.
fn stay(errno: i32) -> Stay {
    let call = Call::ReadMemory;
    match (Refusal { call, errno }) {
        refusal if refusal.cause() == Cause::Unreadable => Stay::Unreadable,
        refusal => Stay::Refused(refusal),
    }
}

/// Cuts `ranges` into batches of at most [`BATCH`] bytes.
fn batches(ranges: &[AddrRange]) -> Vec<Vec<AddrRange>> {
    let mut batches: Vec<Vec<AddrRange>> = Vec::new();
    let mut room = Bytes::ZERO;
    for range in ranges {
        let mut rest = *range;
        while !rest.is_empty() {
            if room == Bytes::ZERO || batches.last().is_none_or(|batch| batch.len() == MAX_RANGES) {
                batches.push(Vec::new());
                room = BATCH;
            }
            let end = rest.start + rest.len().min(room);
            let first = AddrRange { end, ..rest };
            room = room.saturating_sub(first.len());
            batches.last_mut().into_iter().for_each(|batch| batch.push(first));
            rest.start = end;
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn swapped_pages_are_found_and_guard_pages_are_not() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("proc/7");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("maps"), "1000-6000 rw-p 00000000 00:00 0 \n").unwrap();
        let (swapped, present, guard) = (1 << 62, 1 << 63, 1 << 62 | 1 << 58);
        let entries: Vec<u8> = [0_u64, swapped, swapped, present, guard, swapped]
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .collect();
        std::fs::write(dir.join("pagemap"), entries).unwrap();
        let found = Swapped::find(root.path(), 7).unwrap();
        let ranges = [AddrRange::new(0x1000, 0x3000), AddrRange::new(0x5000, 0x6000)];
        assert_eq!((&found.ranges[..], found.bytes()), (&ranges[..], Bytes::kib(12)));
        assert_eq!(found.count(), (Bytes::ZERO, Bytes::kib(12)));
        assert!(Swapped::find(root.path(), 8).unwrap_err().is_gone());
    }

    #[test]
    fn batches_hold_every_byte_once() {
        let mib = |from: u64, to: u64| AddrRange::new(from << 20, to << 20);
        let cut = batches(&[mib(0, 3), mib(4, 20)]);
        assert_eq!(
            cut,
            [vec![mib(0, 3), mib(4, 9)], vec![mib(9, 17)], vec![mib(17, 20)]]
        );
        let pages: Vec<AddrRange> = (0..1500)
            .map(|n| AddrRange::new(n << 13, (n << 13) + PAGE_SIZE))
            .collect();
        let lens: Vec<usize> = batches(&pages).iter().map(Vec::len).collect();
        assert_eq!(lens, [1024, 476]);
        assert!(batches(&[]).is_empty());
    }
}
