//! A magazine: the free blocks of one thread, last in, first out, without a lock. Other threads can take its
//! blocks during a squeeze.
//!
//! Usual thread caches are private. They are emptied when their thread next runs, so a thread that sleeps in
//! `epoll_wait` keeps its memory under pressure. Here, each entry is an atomic [`Slot`]. The owning thread
//! takes and puts blocks with one atomic operation on a cache line that only it uses. A squeezing thread
//! takes blocks at once, even if the owner sleeps.

use crate::class::{CLASS_COUNT, Class, pages};
use crate::raw::{Block, Slot};
use crate::reclaim_batch::ReclaimBatch;
use crate::sync::{AtomicUsize, Ordering};

/// Blocks of one size class in a magazine. Further blocks go to the depot, which all threads of the pool
/// share.
const DEPTH: usize = if cfg!(loom) { 2 } else { 8 };

/// Slots of one size class, and a hint of the topmost block.
#[derive(Debug)]
struct ClassSlots {
    slots: [Slot; DEPTH],
    top: AtomicUsize,
}

/// The slots of all size classes.
#[derive(Debug)]
pub(crate) struct Magazine {
    classes: Vec<ClassSlots>,
    /// Number of pages, never too low: increased before a block is put, decreased after one is taken.
    pages: AtomicUsize,
}

impl Magazine {
    pub(crate) fn new() -> Self {
        let class_slots = || ClassSlots {
            slots: std::array::from_fn(|_| Slot::new()),
            top: AtomicUsize::new(0),
        };
        let classes = if cfg!(loom) { 1 } else { CLASS_COUNT };
        Self {
            classes: (0..classes).map(|_| class_slots()).collect(),
            pages: AtomicUsize::new(0),
        }
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// Takes the most recent block, or nearly so: the hint can be stale after another thread took or put one.
    pub(crate) fn pop(&self, class: Class) -> Option<Block> {
        let class_slots = &self.classes[class.index()];
        let top = class_slots.top.load(Ordering::Relaxed).min(DEPTH);
        let order = (0..top).rev().chain(top..DEPTH);
        for at in order {
            if let Some(block) = class_slots.slots[at].take() {
                class_slots.top.store(at, Ordering::Relaxed);
                self.pages.fetch_sub(pages(block.len()), Ordering::Relaxed);
                return Some(block);
            }
        }
        None
    }

    /// Puts a block on top. Returns the block if all slots are full.
    pub(crate) fn push(&self, class: Class, mut block: Block) -> Result<(), Block> {
        let class_slots = &self.classes[class.index()];
        let pages = pages(block.len());
        self.pages.fetch_add(pages, Ordering::Relaxed);
        let top = class_slots.top.load(Ordering::Relaxed).min(DEPTH);
        for at in (top..DEPTH).chain((0..top).rev()) {
            match class_slots.slots[at].put(block) {
                Ok(()) => {
                    class_slots.top.store(at + 1, Ordering::Relaxed);
                    return Ok(());
                }
                Err(back) => block = back,
            }
        }
        self.pages.fetch_sub(pages, Ordering::Relaxed);
        Err(block)
    }

    /// Takes blocks, largest classes first, until the batch is full.
    pub(crate) fn steal(&self, batch: &mut ReclaimBatch) {
        for slot in self
            .classes
            .iter()
            .rev()
            .flat_map(|class_slots| &class_slots.slots)
        {
            if batch.is_full() {
                return;
            }
            if let Some(block) = slot.take() {
                self.pages.fetch_sub(pages(block.len()), Ordering::Relaxed);
                batch.add(block);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn magazine_pops_most_recent_block_first() {
        let magazine = Magazine::new();
        let class = Class::holding(1).unwrap();
        let blocks = Block::carve(class.len(), 3).unwrap();
        let starts: Vec<_> = blocks.iter().map(|block| block.bytes().as_ptr()).collect();
        for block in blocks {
            magazine.push(class, block).unwrap();
        }
        assert_eq!(magazine.pages(), 3);
        let back = std::iter::from_fn(|| magazine.pop(class));
        let back: Vec<_> = back.map(|block| block.bytes().as_ptr()).collect();
        assert!(back.iter().eq(starts.iter().rev()));
        assert_eq!(magazine.pages(), 0);
    }

    #[test]
    fn magazine_returns_block_when_full_and_steal_empties_it() {
        let magazine = Magazine::new();
        let (small, large) = (Class::holding(1).unwrap(), Class::holding(1 << 20).unwrap());
        let mut blocks = Block::carve(small.len(), DEPTH + 1).unwrap();
        let last = blocks.pop().unwrap();
        for block in blocks {
            magazine.push(small, block).unwrap();
        }
        magazine.push(small, last).unwrap_err();
        let big = Block::carve(large.len(), 1).unwrap().pop().unwrap();
        magazine.push(large, big).unwrap();
        let mut one = ReclaimBatch::with_target(1);
        magazine.steal(&mut one);
        assert_eq!(one.blocks[0].len(), large.len());
        let mut rest = ReclaimBatch::with_target(usize::MAX);
        magazine.steal(&mut rest);
        assert_eq!((rest.blocks.len(), magazine.pages()), (DEPTH, 0));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    fn magazine_with(count: usize) -> (Arc<Magazine>, Class) {
        let (magazine, class) = (Arc::new(Magazine::new()), Class::holding(1).unwrap());
        for block in Block::carve(class.len(), count).unwrap() {
            magazine.push(class, block).unwrap();
        }
        (magazine, class)
    }

    fn steal_all(magazine: &Magazine) -> usize {
        let mut batch = ReclaimBatch::with_target(usize::MAX);
        magazine.steal(&mut batch);
        batch.blocks.len()
    }

    #[test]
    fn loom_block_goes_to_owner_or_thief() {
        loom::model(|| {
            let (magazine, class) = magazine_with(2);
            let thief = {
                let magazine = Arc::clone(&magazine);
                loom::thread::spawn(move || steal_all(&magazine))
            };
            let mine = magazine.pop(class);
            let put_back = mine.map(|block| magazine.push(class, block).is_ok());
            let stolen = thief.join().unwrap();
            assert_eq!(stolen + steal_all(&magazine), 2, "put back: {put_back:?}");
            assert_eq!(magazine.pages(), 0);
        });
    }

    #[test]
    fn loom_no_block_stays_free_while_a_request_waits() {
        use crate::budget::Budget;
        loom::model(|| {
            let (magazine, class) = (Arc::new(Magazine::new()), Class::holding(1).unwrap());
            let budget = Arc::new(Budget::new(1 << 20));
            let account = budget.with(|ledger| ledger.open(0)).unwrap();
            let block = Block::carve(class.len(), 1).unwrap().pop().unwrap();
            let releaser = {
                let (magazine, budget) = (Arc::clone(&magazine), Arc::clone(&budget));
                loom::thread::spawn(move || {
                    magazine.push(class, block).unwrap();
                    if budget.has_waiters_after_put() {
                        steal_all(&magazine)
                    } else {
                        0
                    }
                })
            };
            budget.queue(account, 4096);
            let taken = steal_all(&magazine);
            assert_eq!(
                taken + releaser.join().unwrap(),
                1,
                "a free block remains while a request waits"
            );
        });
    }
}
