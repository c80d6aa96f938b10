//! The shared part of a pool: free blocks that fit in no magazine, and mapped address space without pages.

use std::collections::VecDeque;
use std::io;

use crate::class::{CLASS_COUNT, Class, pages};
use crate::raw::Block;
use crate::reclaim_batch::ReclaimBatch;

/// Free blocks of one size class.
#[derive(Debug, Default)]
struct Stack {
    /// Blocks with pages, the least recently used first.
    warm: VecDeque<Block>,
    /// Blocks without pages.
    cold: Vec<Block>,
}

/// Free blocks of all size classes.
#[derive(Debug)]
pub(crate) struct Depot {
    stacks: [Stack; CLASS_COUNT],
    pages: usize,
}

impl Depot {
    pub(crate) fn new() -> Self {
        Self {
            stacks: std::array::from_fn(|_| Stack::default()),
            pages: 0,
        }
    }

    /// Number of pages in warm blocks.
    pub(crate) const fn pages(&self) -> usize {
        self.pages
    }

    pub(crate) fn push(&mut self, class: Class, block: Block) {
        self.pages += pages(block.len());
        self.stacks[class.index()].warm.push_back(block);
    }

    /// Takes the most recently used warm block.
    pub(crate) fn pop(&mut self, class: Class) -> Option<Block> {
        let block = self.stacks[class.index()].warm.pop_back()?;
        self.pages -= pages(block.len());
        Some(block)
    }

    /// Takes the least recently used warm blocks, largest classes first, until the batch is full.
    pub(crate) fn steal(&mut self, batch: &mut ReclaimBatch) {
        for stack in self.stacks.iter_mut().rev() {
            while !batch.is_full() {
                let Some(block) = stack.warm.pop_front() else {
                    break;
                };
                self.pages -= pages(block.len());
                batch.add(block);
            }
        }
    }

    /// Keeps the address space of a block whose pages were released.
    pub(crate) fn push_cold(&mut self, class: Class, block: Block) {
        self.stacks[class.index()].cold.push(block);
    }

    /// Returns a block without pages, and whether new address space was mapped for it.
    ///
    /// # Errors
    /// The kernel cannot map more address space.
    pub(crate) fn pop_cold(&mut self, class: Class) -> io::Result<(Block, bool)> {
        let cold = &mut self.stacks[class.index()].cold;
        if let Some(block) = cold.pop() {
            return Ok((block, false));
        }
        cold.extend(Block::carve(class.len(), class.per_slab())?);
        let block = cold.pop().ok_or(io::ErrorKind::OutOfMemory)?;
        Ok((block, true))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn depot_lends_hottest_and_releases_coldest() {
        let mut depot = Depot::new();
        let class = Class::holding(1).unwrap();
        let mut starts = Vec::new();
        for _ in 0..3 {
            let (block, _) = depot.pop_cold(class).unwrap();
            starts.push(block.bytes().as_ptr());
            // Pushed immediately, so that no block is taken twice.
            depot.push(class, block);
        }
        assert_eq!(depot.pages(), 3);
        let mut batch = ReclaimBatch::with_target(1);
        depot.steal(&mut batch);
        assert_eq!(batch.blocks[0].bytes().as_ptr(), starts[0]);
        assert_eq!(depot.pop(class).unwrap().bytes().as_ptr(), starts[2]);
        assert_eq!(depot.pages(), 1);
    }

    #[test]
    fn depot_reuses_address_space() {
        let mut depot = Depot::new();
        let class = Class::holding(1 << 20).unwrap();
        let (block, mapped) = depot.pop_cold(class).unwrap();
        assert!(mapped);
        depot.push_cold(class, block);
        assert!(!depot.pop_cold(class).unwrap().1);
    }
}
