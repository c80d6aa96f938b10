//! Folios in the idle-page bitmap: one bit each, that of the first frame.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use thermo_kernel::FileError;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::page_idle::{FRAMES, IdleBitmap};

/// The largest folio on an LRU list: 2 MiB.
const MAX_ORDER: u32 = 9;

/// The bitmap, and the frame flags that distinguish folios.
#[derive(Debug)]
pub(super) struct IdleFolios {
    bitmap: IdleBitmap,
    frames: PageFrames,
}

impl IdleFolios {
    /// Opens the bitmap of the machine at `root` (`/`).
    ///
    /// # Errors
    /// The kernel has no bitmap, or we are not root.
    pub(super) fn open(root: &Path) -> Result<Self, FileError> {
        let frames = PageFrames::open(root);
        Ok(Self {
            bitmap: IdleBitmap::open(root)?,
            frames: frames.map_err(|error| FileError::new(&root.join("proc/kpageflags"), error))?,
        })
    }

    /// The first frame of the folio of `pfn`; `None` if it is on no LRU list. The length of a folio is a
    /// power of two and the folio starts at a multiple of its length.
    pub(super) fn head_of(&self, pfn: u64) -> Option<u64> {
        let flags = |pfn| self.frames.flags(pfn).unwrap_or_default();
        let head = if flags(pfn).is_compound_tail() {
            (1..=MAX_ORDER)
                .map(|order| pfn >> order << order)
                .find(|start| flags(*start).is_compound_head())?
        } else {
            pfn
        };
        flags(head).is_lru().then_some(head)
    }

    /// Sets the idle bits of the folios with these first frames. Returns the frames that were refused.
    pub(super) fn set_idle(&self, heads: impl Iterator<Item = u64>) -> BTreeSet<u64> {
        let mut words: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        heads.for_each(|head| words.entry(head / FRAMES).or_default().push(head));
        let bits = |heads: &[u64]| heads.iter().fold(0, |bits, head| bits | 1 << (head % FRAMES));
        let refused = words
            .into_iter()
            .filter(|(word, heads)| self.bitmap.set_idle(*word, bits(heads)).is_err());
        refused.flat_map(|(_, heads)| heads).collect()
    }

    /// A reader of the current idle bits.
    pub(super) const fn reader(&self) -> IdleReader<'_> {
        IdleReader {
            bitmap: &self.bitmap,
            words: BTreeMap::new(),
        }
    }
}

/// Reads idle bits; each word of the bitmap is read once.
pub(super) struct IdleReader<'a> {
    bitmap: &'a IdleBitmap,
    words: BTreeMap<u64, u64>,
}

impl IdleReader<'_> {
    /// Whether the folio with this first frame was not accessed since its idle bit was set.
    pub(super) fn is_idle(&mut self, head: u64) -> bool {
        let word = self
            .words
            .entry(head / FRAMES)
            .or_insert_with_key(|word| self.bitmap.read_idle(*word).unwrap_or(0));
        *word >> (head % FRAMES) & 1 == 1
    }
}
