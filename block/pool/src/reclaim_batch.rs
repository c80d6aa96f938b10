//! A batch of free blocks to release, collected so that adjacent blocks go to the kernel in one call.

use crate::class::pages;
use crate::raw::Block;

/// The collected blocks, and the number of pages wanted.
#[derive(Debug)]
pub(crate) struct ReclaimBatch {
    pub(crate) blocks: Vec<Block>,
    pages: usize,
    target: usize,
}

impl ReclaimBatch {
    /// An empty batch that is full at `target` pages.
    pub(crate) const fn with_target(target: usize) -> Self {
        Self {
            blocks: Vec::new(),
            pages: 0,
            target,
        }
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.pages >= self.target
    }

    pub(crate) fn add(&mut self, block: Block) {
        self.pages += pages(block.len());
        self.blocks.push(block);
    }
}
