//! What all threads of a pool share: free blocks that found no place on a shelf, and address space without pages.

use std::collections::VecDeque;
use std::io;

use crate::class::{CLASSES, Class, pages};
use crate::raw::Block;
use crate::reclaim_batch::Haul;

/// One class.
#[derive(Debug, Default)]
struct Stack {
    /// With pages; the coldest in front.
    warm: VecDeque<Block>,
    /// Without.
    cold: Vec<Block>,
}

/// All classes.
#[derive(Debug)]
pub(crate) struct Depot {
    stacks: [Stack; CLASSES],
    pages: usize,
}

impl Depot {
    pub(crate) fn new() -> Self {
        Self {
            stacks: std::array::from_fn(|_| Stack::default()),
            pages: 0,
        }
    }

    /// Pages of the warm blocks.
    pub(crate) const fn pages(&self) -> usize {
        self.pages
    }

    pub(crate) fn push(&mut self, class: Class, block: Block) {
        self.pages += pages(block.len());
        self.stacks[class.index()].warm.push_back(block);
    }

    /// The warm block put last.
    pub(crate) fn pop(&mut self, class: Class) -> Option<Block> {
        let block = self.stacks[class.index()].warm.pop_back()?;
        self.pages -= pages(block.len());
        Some(block)
    }

    /// Takes the coldest warm blocks, of the largest classes first, until the haul is full.
    pub(crate) fn steal(&mut self, haul: &mut Haul) {
        for stack in self.stacks.iter_mut().rev() {
            while !haul.is_full() {
                let Some(block) = stack.warm.pop_front() else {
                    break;
                };
                self.pages -= pages(block.len());
                haul.add(block);
            }
        }
    }

    /// Keeps the address space of a block that was given back.
    pub(crate) fn keep_cold(&mut self, class: Class, block: Block) {
        self.stacks[class.index()].cold.push(block);
    }

    /// A block without pages; maps more when there is none. The flag tells whether it did.
    ///
    /// # Errors
    /// When the kernel has no address space left for us.
    pub(crate) fn cold(&mut self, class: Class) -> io::Result<(Block, bool)> {
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
    fn the_hottest_is_lent_and_the_coldest_goes() {
        let mut depot = Depot::new();
        let class = Class::holding(1).unwrap();
        let mut starts = Vec::new();
        for _ in 0..3 {
            let (block, _) = depot.cold(class).unwrap();
            starts.push(block.bytes().as_ptr());
            // One after the other, so that none is taken twice.
            depot.push(class, block);
        }
        assert_eq!(depot.pages(), 3);
        let mut haul = Haul::of(1);
        depot.steal(&mut haul);
        assert_eq!(haul.blocks[0].bytes().as_ptr(), starts[0]);
        assert_eq!(depot.pop(class).unwrap().bytes().as_ptr(), starts[2]);
        assert_eq!(depot.pages(), 1);
    }

    #[test]
    fn address_space_is_used_again() {
        let mut depot = Depot::new();
        let class = Class::holding(1 << 20).unwrap();
        let (block, mapped) = depot.cold(class).unwrap();
        assert!(mapped);
        depot.keep_cold(class, block);
        assert!(!depot.cold(class).unwrap().1);
    }
}
