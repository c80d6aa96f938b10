//! Raw pages: mapped, lent, and given back to the kernel. The only file with `unsafe`.
//!
//! A *slab* is one anonymous mapping; it is carved once into [`Block`]s that do not overlap and are never copied, so
//! that whoever owns a block owns its bytes. A block keeps its slab mapped. A [`Slot`] holds a block where several
//! threads can reach for it, and one of them gets it.
#![allow(unsafe_code, reason = "raw pages are what this file is for")]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::settings::GiveBack;
use crate::sync::{AtomicPtr, Ordering};

/// One mapping.
#[derive(Debug)]
struct Slab {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; the bytes are reached only through blocks.
unsafe impl Send for Slab {}
// SAFETY: as above; a shared slab offers no access to its bytes.
unsafe impl Sync for Slab {}

impl Slab {
    fn map(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the place, so no mapping of anybody is replaced.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        // A huge page would make a block of 4 KiB cost 2 MiB that no budget knows of. A kernel without huge pages
        // refuses, and that is as well.
        // SAFETY: the range is the mapping just made; the advice changes no byte.
        let _ = unsafe { madvise(start, len, Advice::LinuxNoHugepage) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no block is left: each holds a share in this slab.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// What lies in the pages of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Nothing yet, or given back: no pages, reads as zeros.
    Zeros,
    /// Given back lazily: the old bytes, until the kernel takes the pages, then zeros. Anything may be read.
    Fading,
    /// What its last user wrote.
    Used,
}

/// A run of pages with one owner. Boxed once, when it is carved, so that a [`Slot`] can hold it as a pointer.
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

// SAFETY: a run is the only way to its bytes, wherever it is sent.
unsafe impl Send for PageRun {}
// SAFETY: a shared run lends its bytes for reading only.
unsafe impl Sync for PageRun {}

impl Block {
    /// Maps `len * count` bytes and makes them `count` blocks. They take no memory before they are written.
    pub(crate) fn carve(len: usize, count: usize) -> io::Result<Vec<Self>> {
        let total = len.checked_mul(count).ok_or(io::ErrorKind::OutOfMemory)?;
        let slab = Arc::new(Slab::map(total)?);
        let block = |index: usize| {
            Self(Box::new(PageRun {
                // SAFETY: index < count, so this stays within the mapping of len * count bytes.
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

    /// Makes a block that may have been given back ready for its next user; with `wipe`, every byte is zero.
    pub(crate) fn ready(&mut self, wipe: bool) {
        if wipe && self.0.contents != Contents::Zeros {
            // Writing also ends the fading.
            self.bytes_mut().fill(0);
        } else if self.0.contents == Contents::Fading {
            self.keep_pages();
        }
        self.0.contents = Contents::Used;
    }

    // A fading page changes under its reader until it is written to; one byte a page is enough (madvise(2), MADV_FREE).
    fn keep_pages(&mut self) {
        for at in (0..self.0.len).step_by(rustix::param::page_size()) {
            // SAFETY: at < len, and the bytes are ours alone. Volatile, so that the write is not optimised away.
            unsafe { self.0.start.add(at).write_volatile(0) };
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped while the slab lives, initialised (zeros or written), and nobody writes it
        // while `self` is borrowed: a block has one owner, and `ready` ended the fading before it was lent.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.len) }
    }

    /// True when the kernel has, or may take, its pages.
    pub(crate) fn is_given_back(&self) -> bool {
        self.0.contents != Contents::Used
    }

    fn end(&self) -> usize {
        self.0.start.as_ptr() as usize + self.0.len
    }
}

/// Gives the pages of `blocks` back to the kernel, neighbours in one call; tells the number of calls.
///
/// # Errors
/// When the kernel refused some: those do not say [`Block::is_given_back`].
pub(crate) fn give_back(blocks: &mut [Block], how: GiveBack) -> io::Result<usize> {
    blocks.sort_unstable_by_key(|block| block.0.start);
    let mut calls = 0;
    let mut outcome = Ok(());
    for run in blocks.chunk_by_mut(|one, next| one.end() == next.0.start.as_ptr() as usize) {
        calls += 1;
        let len = run.iter().map(|block| block.0.len).sum();
        match advise(run[0].0.start, len, how) {
            Ok(()) => run.iter_mut().for_each(|block| block.0.contents = how.into()),
            Err(errno) => outcome = Err(errno.into()),
        }
    }
    outcome.map(|()| calls)
}

// Locked memory (mlockall) cannot be freed lazily, and is dropped only by the advice that says so, Linux 5.18.
fn advise(start: NonNull<u8>, len: usize, how: GiveBack) -> rustix::io::Result<()> {
    let advices: &[Advice] = match how {
        GiveBack::DontNeed => &[Advice::LinuxDontNeed, Advice::LinuxDontneedLocked],
        GiveBack::Free => &[
            Advice::LinuxFree,
            Advice::LinuxDontNeed,
            Advice::LinuxDontneedLocked,
        ],
    };
    let mut outcome = Err(rustix::io::Errno::INVAL);
    for &advice in advices {
        // SAFETY: the caller owns every block of the range, and nothing in them is needed any more.
        outcome = unsafe { madvise(start.as_ptr().cast(), len, advice) };
        if outcome != Err(rustix::io::Errno::INVAL) {
            break;
        }
    }
    outcome
}

impl From<GiveBack> for Contents {
    fn from(how: GiveBack) -> Self {
        match how {
            GiveBack::DontNeed => Self::Zeros,
            GiveBack::Free => Self::Fading,
        }
    }
}

/// A place for one block that several threads may reach for, without a lock.
#[derive(Debug)]
pub(crate) struct Slot(AtomicPtr<PageRun>);

impl Slot {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Takes the block, if there is one and nobody was faster.
    pub(crate) fn take(&self) -> Option<Block> {
        // Looking first keeps an empty slot's line shared between the CPUs that look.
        if self.0.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let run = self.0.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: only `put` stores a pointer, made by `Box::into_raw`; the swap gave it to this thread alone.
        (!run.is_null()).then(|| Block(unsafe { Box::from_raw(run) }))
    }

    /// Puts a block here, or hands it back when the slot is taken.
    pub(crate) fn put(&self, block: Block) -> Result<(), Block> {
        let run = Box::into_raw(block.0);
        self.0
            .compare_exchange(ptr::null_mut(), run, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            // SAFETY: the pointer was not stored, so the box is still this thread's.
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
    fn blocks_of_a_slab_do_not_overlap() {
        let mut blocks = Block::carve(8192, 3).unwrap();
        for (number, block) in (1..).zip(&mut blocks) {
            block.bytes_mut().fill(number);
        }
        for (number, block) in (1..).zip(&blocks) {
            assert!(block.bytes().iter().all(|&byte| byte == number));
        }
    }

    #[test]
    fn what_was_given_back_reads_as_zeros_and_neighbours_take_one_call() {
        let mut blocks = Block::carve(4096.max(rustix::param::page_size()), 4).unwrap();
        for block in &mut blocks {
            block.ready(false);
            block.bytes_mut().fill(7);
        }
        let kept = blocks.remove(3);
        blocks.reverse();
        assert_eq!(give_back(&mut blocks, GiveBack::DontNeed).unwrap(), 1);
        assert!(blocks.iter().all(|block| block.is_given_back()));
        assert!(
            blocks
                .iter()
                .all(|block| block.bytes().iter().all(|&byte| byte == 0))
        );
        assert!(kept.bytes().iter().all(|&byte| byte == 7) && !kept.is_given_back());
    }

    #[test]
    fn a_wiped_block_is_zero_however_it_was_given_back() {
        for how in [None, Some(GiveBack::Free), Some(GiveBack::DontNeed)] {
            let mut blocks = Block::carve(65536, 1).unwrap();
            blocks[0].ready(true);
            blocks[0].bytes_mut().fill(9);
            if let Some(how) = how {
                give_back(&mut blocks, how).unwrap();
            }
            blocks[0].ready(true);
            assert!(blocks[0].bytes().iter().all(|&byte| byte == 0), "{how:?}");
        }
    }

    #[test]
    fn a_slot_holds_one() {
        let mut blocks = Block::carve(4096, 2).unwrap();
        let slot = Slot::new();
        assert!(slot.take().is_none());
        slot.put(blocks.pop().unwrap()).unwrap();
        slot.put(blocks.pop().unwrap()).unwrap_err();
        assert!(slot.take().is_some() && slot.take().is_none());
    }
}
