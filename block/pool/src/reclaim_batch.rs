//! Free blocks on their way back to the kernel, taken together so that neighbours go in one call.

use crate::class::pages;
use crate::raw::Block;

/// What was taken so far, and how much is wanted.
#[derive(Debug)]
pub(crate) struct Haul {
    pub(crate) blocks: Vec<Block>,
    pages: usize,
    wanted: usize,
}

impl Haul {
    /// Of at least this many pages, if there are as many.
    pub(crate) const fn of(wanted: usize) -> Self {
        Self {
            blocks: Vec::new(),
            pages: 0,
            wanted,
        }
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.pages >= self.wanted
    }

    pub(crate) fn add(&mut self, block: Block) {
        self.pages += pages(block.len());
        self.blocks.push(block);
    }
}
