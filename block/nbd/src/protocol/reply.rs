//! Answers to requests, as bytes: simple ones, and the chunks of structured ones.

use super::request::Refusal;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

const DONE: u16 = 1;
const TYPE_NONE: u16 = 0;
const TYPE_OFFSET_DATA: u16 = 1;
const TYPE_OFFSET_HOLE: u16 = 2;
const TYPE_BLOCK_STATUS: u16 = 5;
const TYPE_ERROR: u16 = (1 << 15) + 1;

/// The longest head of an answer.
pub const LONGEST_HEAD: usize = 32;

/// The identifier that stands for `base:allocation` in answers.
pub const ALLOCATION_ID: u32 = 1;

/// Extents in one answer, at most.
pub const MOST_EXTENTS: usize = 500;

/// How a client wants its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One head, then the data.
    Simple,
    /// In chunks.
    Structured,
}

/// A part of an export that is alike in whether it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u32,
    /// A hole, which reads as zeros.
    pub is_hole: bool,
}

/// The head of an answer; data may follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    bytes: [u8; LONGEST_HEAD],
    len: usize,
}

impl Head {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn simple(cookie: u64, refusal: Option<Refusal>) -> Self {
        let mut head = Self::default();
        head.add(&SIMPLE_MAGIC.to_be_bytes());
        head.add(&refusal.map_or(0, |refusal| refusal as u32).to_be_bytes());
        head.add(&cookie.to_be_bytes());
        head
    }

    fn chunk(cookie: u64, kind: u16, is_last: bool, len: u32) -> Self {
        let mut head = Self::default();
        head.add(&CHUNK_MAGIC.to_be_bytes());
        head.add(&if is_last { DONE } else { 0 }.to_be_bytes());
        head.add(&kind.to_be_bytes());
        head.add(&cookie.to_be_bytes());
        head.add(&len.to_be_bytes());
        head
    }

    /// Of the answer that something was done, or why not. Nothing follows.
    #[must_use]
    pub fn outcome(style: Style, cookie: u64, outcome: Result<(), Refusal>) -> Self {
        match (style, outcome) {
            (Style::Simple, outcome) => Self::simple(cookie, outcome.err()),
            (Style::Structured, Ok(())) => Self::chunk(cookie, TYPE_NONE, true, 0),
            (Style::Structured, Err(refusal)) => {
                let mut head = Self::chunk(cookie, TYPE_ERROR, true, 6);
                head.add(&(refusal as u32).to_be_bytes());
                head.add(&0_u16.to_be_bytes());
                head
            }
        }
    }

    /// Of `len` bytes of data, which follow; in a structured answer they lie at `offset`, and `is_last` says whether
    /// more chunks come.
    #[must_use]
    pub fn data(style: Style, cookie: u64, offset: u64, len: u32, is_last: bool) -> Self {
        match style {
            Style::Simple => Self::simple(cookie, None),
            Style::Structured => {
                let mut head = Self::chunk(cookie, TYPE_OFFSET_DATA, is_last, len.saturating_add(8));
                head.add(&offset.to_be_bytes());
                head
            }
        }
    }

    /// Of a hole: so many zeros at `offset`. Nothing follows. Only in structured answers.
    #[must_use]
    pub fn hole(cookie: u64, offset: u64, len: u32, is_last: bool) -> Self {
        let mut head = Self::chunk(cookie, TYPE_OFFSET_HOLE, is_last, 12);
        head.add(&offset.to_be_bytes());
        head.add(&len.to_be_bytes());
        head
    }
}

/// What is stored where, as one chunk.
#[must_use]
pub fn block_status(cookie: u64, extents: &[Extent]) -> Vec<u8> {
    const HOLE_AND_ZERO: u32 = 3;
    let len = u32::try_from(4 + extents.len() * 8).unwrap_or_default();
    let mut bytes = Head::chunk(cookie, TYPE_BLOCK_STATUS, true, len).bytes().to_vec();
    bytes.extend(ALLOCATION_ID.to_be_bytes());
    for extent in extents {
        bytes.extend(extent.length.to_be_bytes());
        bytes.extend(if extent.is_hole { HOLE_AND_ZERO } else { 0 }.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_names_its_request() {
        let head = Head::outcome(Style::Simple, 7, Err(Refusal::NoSpace));
        assert_eq!(
            head.bytes(),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 7]
        );
        assert_eq!(Head::data(Style::Simple, 7, 1, 2, true).bytes().len(), 16);
    }

    #[test]
    fn chunks_say_what_follows_and_whether_more_come() {
        let data = Head::data(Style::Structured, 7, 512, 100, false);
        let want = [
            &[
                0x66, 0x8e, 0x33, 0xef, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 108,
            ][..],
            &[0, 0, 0, 0, 0, 0, 2, 0],
        ];
        assert_eq!(data.bytes(), want.concat());
        let hole = Head::hole(7, 512, 100, true);
        assert_eq!((hole.bytes().len(), hole.bytes()[5], hole.bytes()[7]), (32, 1, 2));
        let error = Head::outcome(Style::Structured, 7, Err(Refusal::Io));
        assert_eq!(error.bytes()[6..8], [0x80, 1]);
        assert_eq!(error.bytes()[20..], [0, 0, 0, 5, 0, 0]);
        assert_eq!(Head::outcome(Style::Structured, 7, Ok(())).bytes().len(), 20);
    }

    #[test]
    fn extents_say_where_nothing_is_stored() {
        let extent = |length, is_hole| Extent { length, is_hole };
        let bytes = block_status(7, &[extent(10, false), extent(20, true)]);
        assert_eq!(bytes[16..24], [0, 0, 0, 20, 0, 0, 0, 1]);
        assert_eq!(bytes[24..], [0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 3]);
    }
}
