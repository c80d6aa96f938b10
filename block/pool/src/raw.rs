//! Raw pages: mapping, lending, and releasing them to the kernel. The only file with `unsafe`.
//!
//! A *slab* is one anonymous mapping. It is carved once into [`Block`]s that do not overlap and are never
//! copied, so the owner of a block owns its bytes. A block keeps its slab mapped. A [`Slot`] holds a block
//! that several threads may try to take; exactly one gets it.
#![allow(unsafe_code, reason = "this file manages raw pages")]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::settings::ReleaseAdvice;
use crate::sync::{AtomicPtr, Ordering};

/// One anonymous mapping.
#[derive(Debug)]
struct Slab {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. Its bytes are reached only through blocks.
unsafe impl Send for Slab {}
// SAFETY: as above. A shared slab gives no access to its bytes.
unsafe impl Sync for Slab {}

impl Slab {
    fn map(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        // SAFETY: the range is the mapping just made. The advice changes no byte.
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: this slab owns the range, and no block is left: each block holds a reference to its slab.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The contents of a block's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Never written, or released: no pages, reads as zeros.
    Zeros,
    /// Released lazily: reads as the old bytes until the kernel takes the pages, then as zeros.
    LazilyReleased,
    /// Bytes written by the last user.
    Used,
}

/// A page-aligned range with one owner. Boxed once, when carved, so that a [`Slot`] can hold it as a pointer.
#[derive(Debug)]
pub(crate) struct Block(Box<PageRun>);

#[derive(Debug)]
struct PageRun {
    start: NonNull<u8>,
    len: usize,
    contents: Contents,
    #[expect(dead_code, reason = "it keeps the bytes mapped")]
    slab: Arc<Slab>,
}

// SAFETY: the run is the only access to its bytes, on any thread.
unsafe impl Send for PageRun {}
// SAFETY: a shared run gives read access only.
unsafe impl Sync for PageRun {}

impl Block {
    /// Maps `len * count` bytes and splits them into `count` blocks. They occupy no memory before they are
    /// written.
    pub(crate) fn carve(len: usize, count: usize) -> io::Result<Vec<Self>> {
        let total = len.checked_mul(count).ok_or(io::ErrorKind::OutOfMemory)?;
        let slab = Arc::new(Slab::map(total)?);
        let block = |index: usize| {
            Self(Box::new(PageRun {
                // SAFETY: index < count, so the block lies within the mapping of len * count bytes.
                start: unsafe { slab.start.add(index * len) },
                len,
                contents: Contents::Zeros,
                slab: Arc::clone(&slab),
            }))
        };
        Ok((0..count).map(block).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    /// Prepares a block for its next user: ends a lazy release and, with `zero`, clears every byte.
    pub(crate) fn prepare(&mut self, zero: bool) {
        if zero && self.0.contents != Contents::Zeros {
            // Writing also ends a lazy release.
            self.bytes_mut().fill(0);
        } else if self.0.contents == Contents::LazilyReleased {
            self.keep_pages();
        }
        self.0.contents = Contents::Used;
    }

    // After MADV_FREE, a page may turn to zeros at any time until it is written. One written byte per page is
    // enough (madvise(2)).
    fn keep_pages(&mut self) {
        for at in (0..self.0.len).step_by(rustix::param::page_size()) {
            // SAFETY: at < len, and `self` owns the bytes. Volatile, so that the write is not optimised away.
            unsafe { self.0.start.add(at).write_volatile(0) };
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped while the slab lives, and initialised (zeros or written). Nobody writes
        // it while `self` is borrowed: a block has one owner, and `prepare` ended any lazy release before the
        // block was lent.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.len) }
    }

    /// Whether the kernel has taken, or may take, the pages.
    pub(crate) fn is_released(&self) -> bool {
        self.0.contents != Contents::Used
    }

    fn end(&self) -> usize {
        self.0.start.as_ptr() as usize + self.0.len
    }
}

/// Releases the pages of `blocks` to the kernel, adjacent blocks in one call. Returns the number of calls.
///
/// # Errors
/// The kernel refused a range. The blocks of that range are not [`Block::is_released`].
pub(crate) fn release_pages(blocks: &mut [Block], mode: ReleaseAdvice) -> io::Result<usize> {
    blocks.sort_unstable_by_key(|block| block.0.start);
    let mut calls = 0;
    let mut outcome = Ok(());
    for run in blocks.chunk_by_mut(|one, next| one.end() == next.0.start.as_ptr() as usize) {
        calls += 1;
        let len = run.iter().map(|block| block.0.len).sum();
        match advise(run[0].0.start, len, mode) {
            Ok(()) => run.iter_mut().for_each(|block| block.0.contents = mode.into()),
            Err(errno) => outcome = Err(errno.into()),
        }
    }
    outcome.map(|()| calls)
}

// Locked memory (mlockall) rejects MADV_FREE and MADV_DONTNEED. It needs MADV_DONTNEED_LOCKED (Linux 5.18).
fn advise(start: NonNull<u8>, len: usize, mode: ReleaseAdvice) -> rustix::io::Result<()> {
    let hints: &[Advice] = match mode {
        ReleaseAdvice::DontNeed => &[Advice::LinuxDontNeed, Advice::LinuxDontneedLocked],
        ReleaseAdvice::Free => &[
            Advice::LinuxFree,
            Advice::LinuxDontNeed,
            Advice::LinuxDontneedLocked,
        ],
    };
    let mut outcome = Err(rustix::io::Errno::INVAL);
    for &advice in hints {
        // SAFETY: the caller owns every block of the range and needs none of the bytes.
        outcome = unsafe { madvise(start.as_ptr().cast(), len, advice) };
        if outcome != Err(rustix::io::Errno::INVAL) {
            break;
        }
    }
    outcome
}

impl From<ReleaseAdvice> for Contents {
    fn from(mode: ReleaseAdvice) -> Self {
        match mode {
            ReleaseAdvice::DontNeed => Self::Zeros,
            ReleaseAdvice::Free => Self::LazilyReleased,
        }
    }
}

/// A slot for one block that several threads may take from or put to, without a lock.
#[derive(Debug)]
pub(crate) struct Slot(AtomicPtr<PageRun>);

impl Slot {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Takes the block, if there is one and no other thread took it first.
    pub(crate) fn take(&self) -> Option<Block> {
        // A plain load first: the cache line of an empty slot stays shared among the CPUs.
        if self.0.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let run = self.0.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: only `put` stores pointers, from `Box::into_raw`, and the swap handed this one to this
        // thread alone.
        (!run.is_null()).then(|| Block(unsafe { Box::from_raw(run) }))
    }

    /// Puts a block in the slot. Returns the block if the slot is full.
    pub(crate) fn put(&self, block: Block) -> Result<(), Block> {
        let run = Box::into_raw(block.0);
        self.0
            .compare_exchange(ptr::null_mut(), run, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            // SAFETY: the pointer was not stored, so this thread still owns the box.
            .map_err(|_| Block(unsafe { Box::from_raw(run) }))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn blocks_of_slab_do_not_overlap() {
        let mut blocks = Block::carve(8192, 3).unwrap();
        for (number, block) in (1..).zip(&mut blocks) {
            block.bytes_mut().fill(number);
        }
        for (number, block) in (1..).zip(&blocks) {
            assert!(block.bytes().iter().all(|&byte| byte == number));
        }
    }

    #[test]
    fn released_blocks_read_zero_and_adjacent_take_one_call() {
        let mut blocks = Block::carve(4096.max(rustix::param::page_size()), 4).unwrap();
        for block in &mut blocks {
            block.prepare(false);
            block.bytes_mut().fill(7);
        }
        let kept = blocks.remove(3);
        blocks.reverse();
        assert_eq!(release_pages(&mut blocks, ReleaseAdvice::DontNeed).unwrap(), 1);
        assert!(blocks.iter().all(|block| block.is_released()));
        assert!(
            blocks
                .iter()
                .all(|block| block.bytes().iter().all(|&byte| byte == 0))
        );
        assert!(kept.bytes().iter().all(|&byte| byte == 7) && !kept.is_released());
    }

    #[test]
    fn zeroed_block_is_zero_after_any_release() {
        for mode in [None, Some(ReleaseAdvice::Free), Some(ReleaseAdvice::DontNeed)] {
            let mut blocks = Block::carve(65536, 1).unwrap();
            blocks[0].prepare(true);
            blocks[0].bytes_mut().fill(9);
            if let Some(mode) = mode {
                release_pages(&mut blocks, mode).unwrap();
            }
            blocks[0].prepare(true);
            assert!(blocks[0].bytes().iter().all(|&byte| byte == 0), "{mode:?}");
        }
    }

    #[test]
    fn slot_holds_one_block() {
        let mut blocks = Block::carve(4096, 2).unwrap();
        let slot = Slot::new();
        assert!(slot.take().is_none());
        slot.put(blocks.pop().unwrap()).unwrap();
        slot.put(blocks.pop().unwrap()).unwrap_err();
        assert!(slot.take().is_some() && slot.take().is_none());
    }
}
