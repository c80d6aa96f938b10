//! The memory of a process in pieces that hold so much each: for who works in small steps.

use std::collections::VecDeque;
use std::path::Path;

use thermo_kernel::file::FileError;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_kernel::proc::{self, ProcError};
use thermo_units::{AddrRange, Bytes, PAGE_SIZE};

use super::kind::Kind;

/// Looked at in one go.
const WINDOW: Bytes = Bytes::mib(2);
/// Address space that is gone through at most for one piece: memory may be reserved by the terabyte.
const FURTHEST: Bytes = Bytes::gib(1);

/// A piece of memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece {
    /// Where it lies, with the gaps in it.
    pub range: AddrRange,
    /// Pages of the kind that are in memory, together.
    pub there: Bytes,
    /// The same one by one, neighbours joined.
    pub pages: Vec<AddrRange>,
}

/// Goes through memory from its start to its end.
#[derive(Debug)]
pub struct Pieces {
    pagemap: Pagemap,
    ranges: VecDeque<AddrRange>,
    only: Option<Kind>,
    window: Vec<Page>,
}

impl Pieces {
    /// Of `ranges` (ascending) of process `pid` of the machine at `root`; only pages of a kind count, if one is given.
    ///
    /// # Errors
    /// The process is gone, or may not be looked into.
    pub fn open(
        root: &Path,
        pid: u32,
        ranges: impl IntoIterator<Item = AddrRange>,
        only: Option<Kind>,
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

    /// The next piece that holds `most` bytes, or as much as there is within a GiB of addresses: it may hold nothing.
    /// A piece lies in one range. Nothing when all was gone through.
    pub fn next(&mut self, most: Bytes) -> Option<Piece> {
        let range = self.ranges.pop_front()?;
        let most = most.max(Bytes(PAGE_SIZE));
        let mut piece = Piece {
            range: AddrRange {
                end: range.start,
                ..range
            },
            ..Piece::default()
        };
        let furthest = range.end.min(range.start + FURTHEST);
        while piece.range.end < furthest && piece.there < most {
            let start = piece.range.end;
            let window = AddrRange {
                start,
                end: furthest.min(start + WINDOW),
            };
            self.look(window, most, &mut piece);
        }
        let rest = AddrRange {
            start: piece.range.end,
            ..range
        };
        if !rest.is_empty() {
            self.ranges.push_front(rest);
        }
        Some(piece)
    }

    /// Adds the pages of `window` to the piece, as many as it takes.
    fn look(&mut self, window: AddrRange, most: Bytes, piece: &mut Piece) {
        // What cannot be read is not there.
        if self.pagemap.read(window, &mut self.window).is_err() {
            self.window.clear();
        }
        let counts = |page: &Page| {
            let of_kind = self
                .only
                .is_none_or(|kind| page.is_file() == (kind == Kind::File));
            page.is_present() && of_kind
        };
        let mut addr = window.start.align_down();
        for page in &self.window {
            let next = addr + Bytes(PAGE_SIZE);
            if counts(page) {
                piece.there += Bytes(PAGE_SIZE);
                let (start, end) = (addr, next);
                AddrRange { start, end }.join_onto(&mut piece.pages);
            }
            addr = next;
            if piece.there >= most {
                piece.range.end = addr.min(window.end);
                return;
            }
        }
        piece.range.end = window.end;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::fake;

    const PRESENT: u64 = 1 << 63;
    const FILE: u64 = 1 << 61;

    fn pieces(
        page: impl Fn(u64) -> u64,
        only: Option<Kind>,
        ranges: &[(u64, u64)],
    ) -> (tempfile::TempDir, Pieces) {
        let root = fake::root(4096, page);
        let ranges = ranges.iter().map(|(a, b)| AddrRange::new(a << 12, b << 12));
        let pieces = Pieces::open(root.path(), fake::PID, ranges, only).unwrap();
        (root, pieces)
    }

    #[test]
    fn every_page_of_the_kind_is_in_one_piece_of_the_size() {
        // Every third page is there, every sixth of a file.
        let page = |n: u64| {
            if n.is_multiple_of(6) {
                PRESENT | FILE
            } else if n.is_multiple_of(3) {
                PRESENT
            } else {
                0
            }
        };
        for (only, pages) in [(None, 1000), (Some(Kind::Anon), 500), (Some(Kind::File), 500)] {
            let (_root, mut pieces) = pieces(page, only, &[(0, 1200), (2400, 4200)]);
            let (mut sum, mut end) = (Bytes::ZERO, 0);
            while let Some(piece) = pieces.next(Bytes::kib(64)) {
                assert!(
                    piece.there <= Bytes::kib(64) && !piece.range.is_empty(),
                    "{piece:?}"
                );
                assert_eq!(piece.pages.iter().map(AddrRange::len).sum::<Bytes>(), piece.there);
                assert!(piece.range.start.0 >= end, "{piece:?}");
                assert!(
                    piece
                        .pages
                        .iter()
                        .all(|page| page.intersection(&piece.range) == Some(*page))
                );
                (sum, end) = (sum + piece.there, piece.range.end.0);
            }
            // What lies behind the end of the map is not there.
            assert!(
                sum.0 >> 12 <= pages && (sum.0 >> 12) + 40 >= pages,
                "{only:?}: {sum}"
            );
        }
    }

    #[test]
    fn memory_that_is_only_reserved_is_gone_through_in_steps() {
        let (_root, mut pieces) = pieces(|_| PRESENT, None, &[(1 << 20, 3 << 20)]);
        let lens: Vec<Bytes> = std::iter::from_fn(|| pieces.next(Bytes::mib(1)))
            .map(|piece| piece.range.len())
            .collect();
        assert_eq!(lens, [FURTHEST; 8]);
        assert!(Pieces::open(Path::new("/nowhere"), 7, [], None).is_err());
    }
}
