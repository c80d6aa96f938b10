//! The states of a chunk: 512 neighbouring pages, which one page-table page maps.

use std::ops::Range;

use super::byte::{CHUNK, CHUNK_PAGES, MAX_HISTORY};
use super::counts::{Counts, Scanned};
use crate::access_tables::{Backing, PageKind};
use thermo_units::{AddrRange, PAGE_SIZE};

/// The states of 512 pages.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    /// Index of the pass that last scanned the chunk.
    pub(super) pass: u32,
    pub(super) huge: bool,
    pub(super) backing: ChunkBacking,
    pub(super) bytes: ChunkBytes,
}

#[derive(Debug, Clone)]
pub(super) enum ChunkBytes {
    /// All pages have this byte.
    Uniform(u8),
    Each(Box<[u8; CHUNK_PAGES]>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChunkBacking {
    One(Backing),
    /// End of each part, in pages, and its backing.
    Several(Box<[(u16, Backing)]>),
}

impl Chunk {
    pub(super) const fn scanned(&self, pass: u32) -> Scanned {
        if self.pass == pass {
            Scanned::InThisPass
        } else {
            Scanned::InLastPass
        }
    }

    /// Calls `change` ([`Counts::add`] or [`Counts::subtract`]) for all pages.
    pub(super) fn count(
        &self,
        pass: u32,
        counts: &mut Counts,
        change: impl Fn(&mut Counts, PageKind, u8, Scanned, u32),
    ) {
        match (&self.bytes, &self.backing) {
            (ChunkBytes::Uniform(byte), ChunkBacking::One(backing)) => {
                let kind = PageKind::new(*backing, self.huge);
                change(counts, kind, *byte, self.scanned(pass), CHUNK_PAGES as u32);
            }
            (ChunkBytes::Uniform(byte), _) => {
                count(&[*byte; CHUNK_PAGES], self, self.scanned(pass), counts, change);
            }
            (ChunkBytes::Each(bytes), _) => count(bytes, self, self.scanned(pass), counts, change),
        }
    }

    /// Like [`Chunk::count`], for some of the pages.
    pub(super) fn count_pages(
        &self,
        pages: Range<usize>,
        pass: u32,
        counts: &mut Counts,
        change: impl Fn(&mut Counts, PageKind, u8, Scanned, u32),
    ) {
        if pages == (0..CHUNK_PAGES) {
            return self.count(pass, counts, change);
        }
        let scanned = self.scanned(pass);
        for page in pages {
            let kind = PageKind::new(self.backing.at(page), self.huge);
            change(counts, kind, self.bytes.get(page), scanned, 1);
        }
    }

    /// Records a scan by the running pass that changed no byte.
    pub(super) fn move_to_pass(&mut self, pass: u32, counts: &mut Counts) {
        if self.pass != pass {
            self.count(pass, counts, Counts::subtract);
            self.pass = pass;
            self.count(pass, counts, Counts::add);
        }
    }
}

/// Calls `change` ([`Counts::add`] or [`Counts::subtract`]) for the pages of `chunk`, taking `bytes` as their
/// bytes.
pub(super) fn count(
    bytes: &[u8; CHUNK_PAGES],
    chunk: &Chunk,
    scanned: Scanned,
    counts: &mut Counts,
    change: impl Fn(&mut Counts, PageKind, u8, Scanned, u32),
) {
    let mut count_part = |bytes: &[u8], backing| {
        let mut pages = [0_u32; 256];
        bytes.iter().for_each(|byte| pages[usize::from(*byte)] += 1);
        let kind = PageKind::new(backing, chunk.huge);
        for (byte, pages) in (0..=u8::MAX).zip(pages).filter(|(_, pages)| *pages > 0) {
            change(counts, kind, byte, scanned, pages);
        }
    };
    match &chunk.backing {
        ChunkBacking::One(backing) => count_part(bytes, *backing),
        ChunkBacking::Several(parts) => {
            let mut start = 0;
            for (end, backing) in parts {
                count_part(&bytes[start..usize::from(*end)], *backing);
                start = usize::from(*end);
            }
        }
    }
}

impl ChunkBacking {
    /// The backing of a page.
    fn at(&self, page: usize) -> Backing {
        match self {
            Self::One(backing) => *backing,
            Self::Several(parts) => {
                let part = parts.iter().find(|(end, _)| page < usize::from(*end));
                part.map_or_else(Backing::default, |(_, backing)| *backing)
            }
        }
    }

    /// The backing of the chunk with this number. Gaps between mappings count as the mapping before.
    pub(super) fn of(number: u64, backings: &[(AddrRange, Backing)]) -> Self {
        let chunk = AddrRange::new(number * CHUNK, (number + 1) * CHUNK);
        let first = backings.partition_point(|(range, _)| range.end <= chunk.start);
        let inside = backings[first..]
            .iter()
            .take_while(|(range, _)| range.start < chunk.end);
        let mut parts: Vec<(u16, Backing)> = Vec::new();
        for (range, backing) in inside {
            let start = range.start.0.saturating_sub(chunk.start.0) / PAGE_SIZE;
            match parts.last_mut() {
                Some((_, last)) if last == backing => {}
                Some((end, _)) => {
                    *end = u16::try_from(start).unwrap_or(0);
                    parts.push((CHUNK_PAGES as u16, *backing));
                }
                None => parts.push((CHUNK_PAGES as u16, *backing)),
            }
        }
        match parts[..] {
            [] => Self::One(Backing::default()),
            [(_, backing)] => Self::One(backing),
            _ => Self::Several(parts.into_boxed_slice()),
        }
    }
}

impl ChunkBytes {
    /// Returns one byte for each page, expanding a uniform chunk.
    pub(super) fn each(&mut self) -> &mut [u8; CHUNK_PAGES] {
        if let Self::Uniform(byte) = *self {
            *self = Self::Each(Box::new([byte; CHUNK_PAGES]));
        }
        match self {
            Self::Each(bytes) => bytes,
            Self::Uniform(_) => unreachable!("the chunk was expanded above"),
        }
    }

    /// The byte of a page.
    pub(super) fn get(&self, page: usize) -> u8 {
        match self {
            Self::Uniform(byte) => *byte,
            Self::Each(bytes) => bytes[page],
        }
    }

    /// Changes the bytes of `pages`.
    pub(super) fn change(&mut self, pages: Range<usize>, mut change: impl FnMut(&mut u8)) {
        match self {
            Self::Uniform(byte) if pages == (0..CHUNK_PAGES) => change(byte),
            bytes => bytes.each()[pages].iter_mut().for_each(change),
        }
    }

    /// Changes each byte to its new value in `table`.
    pub(super) fn renumber(&mut self, table: &[u8; 256]) {
        let renumber = |byte: &mut u8| *byte = table[usize::from(*byte)];
        match self {
            Self::Uniform(byte) => renumber(byte),
            Self::Each(bytes) => bytes.iter_mut().for_each(renumber),
        }
    }

    /// Memory outside of the value itself, in bytes.
    #[cfg(test)]
    pub(super) const fn heap_size(&self) -> usize {
        match self {
            Self::Uniform(_) => 0,
            Self::Each(_) => CHUNK_PAGES + 16,
        }
    }

    /// Stores a single byte if all pages have the same.
    pub(super) fn compact(&mut self) {
        if let Self::Each(bytes) = self {
            let first = bytes[0];
            if bytes[CHUNK_PAGES - 1] == first && bytes.iter().fold(true, |all, byte| all & (*byte == first))
            {
                *self = Self::Uniform(first);
            }
        }
    }

    /// True if all 64 pages of the word with this index were accessed in each of the last two passes.
    pub(super) fn is_steadily_accessed(&self, word: usize) -> bool {
        let is_steadily_accessed = |byte: u8| byte <= MAX_HISTORY && byte & 0b11 == 0b11;
        match self {
            Self::Uniform(byte) => is_steadily_accessed(*byte),
            Self::Each(bytes) => bytes[word * 64..][..64]
                .iter()
                .fold(true, |all, byte| all & is_steadily_accessed(*byte)),
        }
    }

    /// The runs of pages with the same byte: first page, number of pages, byte.
    pub(super) fn runs(&self) -> impl Iterator<Item = (usize, usize, u8)> + '_ {
        let (uniform, each) = match self {
            Self::Uniform(byte) => (Some((0, CHUNK_PAGES, *byte)), &[][..]),
            Self::Each(bytes) => (None, bytes.as_slice()),
        };
        let mut start = 0;
        let runs = std::iter::from_fn(move || {
            let rest = &each[start.min(each.len())..];
            let first = *rest.first()?;
            let run = (start, run_length(rest), first);
            start += run.1;
            Some(run)
        });
        uniform.into_iter().chain(runs)
    }
}

pub(super) fn has_history(bytes: &[u8; CHUNK_PAGES]) -> bool {
    bytes
        .iter()
        .fold(false, |any, byte| any | (byte.wrapping_sub(1) < MAX_HISTORY))
}

/// Number of equal bytes at the start of `bytes`.
fn run_length(bytes: &[u8]) -> usize {
    let Some(first) = bytes.first() else { return 0 };
    if bytes.get(1) != Some(first) {
        return 1;
    }
    let (words, _) = bytes.as_chunks::<64>();
    let is_same = |word: &&[u8; 64]| word.iter().fold(true, |same, byte| same & (byte == first));
    let whole = words.iter().take_while(is_same).count() * 64;
    let rest = bytes[whole..].iter().take_while(|byte| *byte == first);
    whole + rest.count()
}
