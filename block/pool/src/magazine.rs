//! A thread's own free blocks: last in, first out, without a lock, and within reach of a squeeze.
//!
//! The usual cache of a thread is invisible to the others: told by an epoch to empty itself, it does so when its
//! thread next runs, and a thread that sleeps in `epoll_wait` keeps its memory through all pressure. Here each place
//! is an atomic [`Slot`]: the thread takes and puts with one atomic operation on a line only it uses, and whoever
//! squeezes takes from it at once, asleep or not.

use crate::class::{CLASSES, Class, pages};
use crate::raw::{Block, Slot};
use crate::reclaim_batch::Haul;
use crate::sync::{AtomicUsize, Ordering};

/// Blocks of one class kept here. More go to the depot, which all threads of the pool share.
const DEPTH: usize = if cfg!(loom) { 2 } else { 8 };

/// One class: slots and a hint where the topmost block is.
#[derive(Debug)]
struct Rack {
    slots: [Slot; DEPTH],
    top: AtomicUsize,
}

/// All classes.
#[derive(Debug)]
pub(crate) struct Shelf {
    racks: Vec<Rack>,
    /// Pages on it, never less than there are: counted before a block is put, and after one was taken.
    pages: AtomicUsize,
}

impl Shelf {
    pub(crate) fn new() -> Self {
        let rack = || Rack {
            slots: std::array::from_fn(|_| Slot::new()),
            top: AtomicUsize::new(0),
        };
        let classes = if cfg!(loom) { 1 } else { CLASSES };
        Self {
            racks: (0..classes).map(|_| rack()).collect(),
            pages: AtomicUsize::new(0),
        }
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// The block put last, or nearly: the hint may be behind when another thread put or took.
    pub(crate) fn pop(&self, class: Class) -> Option<Block> {
        let rack = &self.racks[class.index()];
        let top = rack.top.load(Ordering::Relaxed).min(DEPTH);
        let order = (0..top).rev().chain(top..DEPTH);
        for at in order {
            if let Some(block) = rack.slots[at].take() {
                rack.top.store(at, Ordering::Relaxed);
                self.pages.fetch_sub(pages(block.len()), Ordering::Relaxed);
                return Some(block);
            }
        }
        None
    }

    /// Puts a block on top, or hands it back when there is no place.
    pub(crate) fn push(&self, class: Class, mut block: Block) -> Result<(), Block> {
        let rack = &self.racks[class.index()];
        let pages = pages(block.len());
        self.pages.fetch_add(pages, Ordering::Relaxed);
        let top = rack.top.load(Ordering::Relaxed).min(DEPTH);
        for at in (top..DEPTH).chain((0..top).rev()) {
            match rack.slots[at].put(block) {
                Ok(()) => {
                    rack.top.store(at + 1, Ordering::Relaxed);
                    return Ok(());
                }
                Err(back) => block = back,
            }
        }
        self.pages.fetch_sub(pages, Ordering::Relaxed);
        Err(block)
    }

    /// Takes blocks, the largest classes first, until the haul is full.
    pub(crate) fn steal(&self, haul: &mut Haul) {
        for slot in self.racks.iter().rev().flat_map(|rack| &rack.slots) {
            if haul.is_full() {
                return;
            }
            if let Some(block) = slot.take() {
                self.pages.fetch_sub(pages(block.len()), Ordering::Relaxed);
                haul.add(block);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn the_block_put_last_comes_first() {
        let shelf = Shelf::new();
        let class = Class::holding(1).unwrap();
        let blocks = Block::carve(class.len(), 3).unwrap();
        let starts: Vec<_> = blocks.iter().map(|block| block.bytes().as_ptr()).collect();
        for block in blocks {
            shelf.push(class, block).unwrap();
        }
        assert_eq!(shelf.pages(), 3);
        let back = std::iter::from_fn(|| shelf.pop(class));
        let back: Vec<_> = back.map(|block| block.bytes().as_ptr()).collect();
        assert!(back.iter().eq(starts.iter().rev()));
        assert_eq!(shelf.pages(), 0);
    }

    #[test]
    fn a_full_rack_hands_back_and_a_theft_empties_all() {
        let shelf = Shelf::new();
        let (small, large) = (Class::holding(1).unwrap(), Class::holding(1 << 20).unwrap());
        let mut blocks = Block::carve(small.len(), DEPTH + 1).unwrap();
        let last = blocks.pop().unwrap();
        for block in blocks {
            shelf.push(small, block).unwrap();
        }
        shelf.push(small, last).unwrap_err();
        let big = Block::carve(large.len(), 1).unwrap().pop().unwrap();
        shelf.push(large, big).unwrap();
        let mut one = Haul::of(1);
        shelf.steal(&mut one);
        assert_eq!(one.blocks[0].len(), large.len());
        let mut rest = Haul::of(usize::MAX);
        shelf.steal(&mut rest);
        assert_eq!((rest.blocks.len(), shelf.pages()), (DEPTH, 0));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    fn shelf_with(count: usize) -> (Arc<Shelf>, Class) {
        let (shelf, class) = (Arc::new(Shelf::new()), Class::holding(1).unwrap());
        for block in Block::carve(class.len(), count).unwrap() {
            shelf.push(class, block).unwrap();
        }
        (shelf, class)
    }

    fn stolen(shelf: &Shelf) -> usize {
        let mut haul = Haul::of(usize::MAX);
        shelf.steal(&mut haul);
        haul.blocks.len()
    }

    #[test]
    fn loom_a_block_goes_to_one_of_owner_and_thief() {
        loom::model(|| {
            let (shelf, class) = shelf_with(2);
            let thief = {
                let shelf = Arc::clone(&shelf);
                loom::thread::spawn(move || stolen(&shelf))
            };
            let mine = shelf.pop(class);
            let put_back = mine.map(|block| shelf.push(class, block).is_ok());
            let theirs = thief.join().unwrap();
            assert_eq!(theirs + stolen(&shelf), 2, "put back: {put_back:?}");
            assert_eq!(shelf.pages(), 0);
        });
    }

    #[test]
    fn loom_nothing_stays_free_while_somebody_waits() {
        use crate::budget::Budget;
        loom::model(|| {
            let (shelf, class) = (Arc::new(Shelf::new()), Class::holding(1).unwrap());
            let budget = Arc::new(Budget::new(1 << 20));
            let account = budget.with(|ledger| ledger.open(0)).unwrap();
            let block = Block::carve(class.len(), 1).unwrap().pop().unwrap();
            let releaser = {
                let (shelf, budget) = (Arc::clone(&shelf), Arc::clone(&budget));
                loom::thread::spawn(move || {
                    shelf.push(class, block).unwrap();
                    if budget.is_waited_for_after_putting() {
                        stolen(&shelf)
                    } else {
                        0
                    }
                })
            };
            budget.queue(account, 4096);
            let taken = stolen(&shelf);
            assert_eq!(
                taken + releaser.join().unwrap(),
                1,
                "a free block nobody will give up"
            );
        });
    }
}
