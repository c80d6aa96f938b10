//! Cuts a process's memory into chunks with a given amount of resident memory, for callers that work in small
//! steps.

use std::collections::VecDeque;
use std::path::Path;

use thermo_kernel::file::FileError;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_kernel::proc::{self, ProcError};
use thermo_units::{AddrRange, Bytes, PAGE_SIZE};

use super::page_kind::PageKind;

/// Address space per pagemap read.
const WINDOW: Bytes = Bytes::mib(2);
/// Maximum address space of one chunk. Programs may reserve terabytes that hold no pages.
const MAX_SPAN: Bytes = Bytes::gib(1);

/// A range of memory and its resident pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResidentChunk {
    /// The addresses, gaps included.
    pub range: AddrRange,
    /// Resident bytes of the requested kind.
    pub resident: Bytes,
    /// The resident pages of the requested kind, adjacent pages merged.
    pub pages: Vec<AddrRange>,
}

/// Walks the memory of a process in ascending address order.
#[derive(Debug)]
pub struct ResidentChunks {
    pagemap: Pagemap,
    ranges: VecDeque<AddrRange>,
    only: Option<PageKind>,
    window: Vec<Page>,
}

impl ResidentChunks {
    /// Walks `ranges` (ascending) of process `pid` of the machine at `root`. With `only`, other pages do not
    /// count.
    ///
    /// # Errors
    /// The process is gone, or its pagemap may not be read.
    pub fn open(
        root: &Path,
        pid: u32,
        ranges: impl IntoIterator<Item = AddrRange>,
        only: Option<PageKind>,
    ) -> Result<Self, ProcError> {
        let path = proc::dir(root, pid).join("pagemap");
        let pagemap = Pagemap::open(root, pid).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => ProcError::Gone { pid },
            _ => FileError::new(&path, source).into(),
        })?;
        Ok(Self {
            pagemap,
            ranges: ranges.into_iter().collect(),
            only,
            window: Vec::new(),
        })
    }

    /// The next chunk with at most `max` resident bytes. A chunk lies in one range and spans at most 1 GiB of
    /// addresses, so it may have no resident page. `None` at the end.
    pub fn next(&mut self, max: Bytes) -> Option<ResidentChunk> {
        let range = self.ranges.pop_front()?;
        let max = max.max(Bytes(PAGE_SIZE));
        let mut chunk = ResidentChunk {
            range: AddrRange {
                end: range.start,
                ..range
            },
            ..ResidentChunk::default()
        };
        let limit = range.end.min(range.start + MAX_SPAN);
        while chunk.range.end < limit && chunk.resident < max {
            let start = chunk.range.end;
            let window = AddrRange {
                start,
                end: limit.min(start + WINDOW),
            };
            self.add_window(window, max, &mut chunk);
        }
        let rest = AddrRange {
            start: chunk.range.end,
            ..range
        };
        if !rest.is_empty() {
            self.ranges.push_front(rest);
        }
        Some(chunk)
    }

    /// Adds pages of `window` until the chunk has `max` bytes.
    fn add_window(&mut self, window: AddrRange, max: Bytes, chunk: &mut ResidentChunk) {
        // Unreadable memory counts as not present.
        if self.pagemap.read(window, &mut self.window).is_err() {
            self.window.clear();
        }
        let counts = |page: &Page| {
            let is_kind = self
                .only
                .is_none_or(|kind| page.is_file() == (kind == PageKind::File));
            page.is_present() && is_kind
        };
        let mut addr = window.start.align_down();
        for page in &self.window {
            let next = addr + Bytes(PAGE_SIZE);
            if counts(page) {
                chunk.resident += Bytes(PAGE_SIZE);
                let (start, end) = (addr, next);
                AddrRange { start, end }.coalesce_into(&mut chunk.pages);
            }
            addr = next;
            if chunk.resident >= max {
                chunk.range.end = addr.min(window.end);
                return;
            }
        }
        chunk.range.end = window.end;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::fake;

    const PRESENT: u64 = 1 << 63;
    const FILE: u64 = 1 << 61;

    fn chunks(
        page: impl Fn(u64) -> u64,
        only: Option<PageKind>,
        ranges: &[(u64, u64)],
    ) -> (tempfile::TempDir, ResidentChunks) {
        let root = fake::root(4096, page);
        let ranges = ranges.iter().map(|(a, b)| AddrRange::new(a << 12, b << 12));
        let chunks = ResidentChunks::open(root.path(), fake::PID, ranges, only).unwrap();
        (root, chunks)
    }

    #[test]
    fn chunks_cover_every_page_of_the_kind_once() {
        // Every third page is present, every sixth belongs to a file.
        let page = |n: u64| {
            if n.is_multiple_of(6) {
                PRESENT | FILE
            } else if n.is_multiple_of(3) {
                PRESENT
            } else {
                0
            }
        };
        for (only, pages) in [
            (None, 1000),
            (Some(PageKind::Anon), 500),
            (Some(PageKind::File), 500),
        ] {
            let (_root, mut chunks) = chunks(page, only, &[(0, 1200), (2400, 4200)]);
            let (mut sum, mut end) = (Bytes::ZERO, 0);
            while let Some(chunk) = chunks.next(Bytes::kib(64)) {
                assert!(
                    chunk.resident <= Bytes::kib(64) && !chunk.range.is_empty(),
                    "{chunk:?}"
                );
                assert_eq!(
                    chunk.pages.iter().map(AddrRange::len).sum::<Bytes>(),
                    chunk.resident
                );
                assert!(chunk.range.start.0 >= end, "{chunk:?}");
                assert!(
                    chunk
                        .pages
                        .iter()
                        .all(|page| page.intersection(&chunk.range) == Some(*page))
                );
                (sum, end) = (sum + chunk.resident, chunk.range.end.0);
            }
            // Pages beyond the end of the pagemap are not present.
            assert!(
                sum.0 >> 12 <= pages && (sum.0 >> 12) + 40 >= pages,
                "{only:?}: {sum}"
            );
        }
    }

    #[test]
    fn chunks_of_reserved_memory_span_at_most_one_gib() {
        let (_root, mut chunks) = chunks(|_| PRESENT, None, &[(1 << 20, 3 << 20)]);
        let lens: Vec<Bytes> = std::iter::from_fn(|| chunks.next(Bytes::mib(1)))
            .map(|chunk| chunk.range.len())
            .collect();
        assert_eq!(lens, [MAX_SPAN; 8]);
        assert!(ResidentChunks::open(Path::new("/nowhere"), 7, [], None).is_err());
    }
}
