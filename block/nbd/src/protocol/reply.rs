//! Encoding of replies: simple ones, and the chunks of structured ones.

use super::request::NbdError;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

const DONE: u16 = 1;
const TYPE_NONE: u16 = 0;
const TYPE_OFFSET_DATA: u16 = 1;
const TYPE_OFFSET_HOLE: u16 = 2;
const TYPE_BLOCK_STATUS: u16 = 5;
const TYPE_ERROR: u16 = (1 << 15) + 1;

/// Maximum length of a reply header, in bytes.
pub const MAX_HEADER_LEN: usize = 32;

/// The context ID of `base:allocation`.
pub const ALLOCATION_ID: u32 = 1;

/// Maximum number of extents in one reply.
pub const MAX_EXTENTS: usize = 500;

/// Format of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStyle {
    /// One header, then the data.
    Simple,
    /// A sequence of chunks.
    Structured,
}

/// A range of an export that is entirely allocated or entirely a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub length: u32,
    /// Whether the range is a hole, which reads as zeros.
    pub is_hole: bool,
}

/// A reply header. Data may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplyHeader {
    bytes: [u8; MAX_HEADER_LEN],
    len: usize,
}

impl ReplyHeader {
    /// The encoded header.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the longest header has 32 bytes; all are built below, from no data of a client"
    )]
    fn add(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn simple(cookie: u64, error: Option<NbdError>) -> Self {
        let mut header = Self::default();
        header.add(&SIMPLE_MAGIC.to_be_bytes());
        header.add(&error.map_or(0, |error| error as u32).to_be_bytes());
        header.add(&cookie.to_be_bytes());
        header
    }

    fn chunk(cookie: u64, kind: u16, is_last: bool, len: u32) -> Self {
        let mut header = Self::default();
        header.add(&CHUNK_MAGIC.to_be_bytes());
        header.add(&if is_last { DONE } else { 0 }.to_be_bytes());
        header.add(&kind.to_be_bytes());
        header.add(&cookie.to_be_bytes());
        header.add(&len.to_be_bytes());
        header
    }

    /// Header of a reply without data: success or an error.
    #[must_use]
    pub fn outcome(style: ReplyStyle, cookie: u64, outcome: Result<(), NbdError>) -> Self {
        match (style, outcome) {
            (ReplyStyle::Simple, outcome) => Self::simple(cookie, outcome.err()),
            (ReplyStyle::Structured, Ok(())) => Self::chunk(cookie, TYPE_NONE, true, 0),
            (ReplyStyle::Structured, Err(error)) => {
                let mut header = Self::chunk(cookie, TYPE_ERROR, true, 6);
                header.add(&(error as u32).to_be_bytes());
                header.add(&0_u16.to_be_bytes());
                header
            }
        }
    }

    /// Header of `len` bytes of data, which follow. In a structured reply the data belongs to `offset`, and
    /// `is_last` marks the last chunk.
    #[must_use]
    pub fn data(style: ReplyStyle, cookie: u64, offset: u64, len: u32, is_last: bool) -> Self {
        match style {
            ReplyStyle::Simple => Self::simple(cookie, None),
            ReplyStyle::Structured => {
                let mut header = Self::chunk(cookie, TYPE_OFFSET_DATA, is_last, len.saturating_add(8));
                header.add(&offset.to_be_bytes());
                header
            }
        }
    }

    /// Header of a hole of `len` bytes at `offset`. No data follows. Structured replies only.
    #[must_use]
    pub fn hole(cookie: u64, offset: u64, len: u32, is_last: bool) -> Self {
        let mut header = Self::chunk(cookie, TYPE_OFFSET_HOLE, is_last, 12);
        header.add(&offset.to_be_bytes());
        header.add(&len.to_be_bytes());
        header
    }
}

/// Encodes the block status of extents as one chunk.
#[must_use]
pub fn block_status(cookie: u64, extents: &[Extent]) -> Vec<u8> {
    const HOLE_AND_ZERO: u32 = 3;
    let len = u32::try_from(4 + extents.len() * 8).unwrap_or_default();
    let mut bytes = ReplyHeader::chunk(cookie, TYPE_BLOCK_STATUS, true, len)
        .bytes()
        .to_vec();
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
    fn reply_header_holds_error_and_cookie() {
        let header = ReplyHeader::outcome(ReplyStyle::Simple, 7, Err(NbdError::NoSpace));
        assert_eq!(
            header.bytes(),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 7]
        );
        assert_eq!(
            ReplyHeader::data(ReplyStyle::Simple, 7, 1, 2, true).bytes().len(),
            16
        );
    }

    #[test]
    fn chunk_headers_hold_type_length_and_done_flag() {
        let data = ReplyHeader::data(ReplyStyle::Structured, 7, 512, 100, false);
        let want = [
            &[
                0x66, 0x8e, 0x33, 0xef, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 108,
            ][..],
            &[0, 0, 0, 0, 0, 0, 2, 0],
        ];
        assert_eq!(data.bytes(), want.concat());
        let hole = ReplyHeader::hole(7, 512, 100, true);
        assert_eq!((hole.bytes().len(), hole.bytes()[5], hole.bytes()[7]), (32, 1, 2));
        let error = ReplyHeader::outcome(ReplyStyle::Structured, 7, Err(NbdError::Io));
        assert_eq!(error.bytes()[6..8], [0x80, 1]);
        assert_eq!(error.bytes()[20..], [0, 0, 0, 5, 0, 0]);
        assert_eq!(
            ReplyHeader::outcome(ReplyStyle::Structured, 7, Ok(()))
                .bytes()
                .len(),
            20
        );
    }

    #[test]
    fn block_status_encodes_extents() {
        let extent = |length, is_hole| Extent { length, is_hole };
        let bytes = block_status(7, &[extent(10, false), extent(20, true)]);
        assert_eq!(bytes[16..24], [0, 0, 0, 20, 0, 0, 0, 1]);
        assert_eq!(bytes[24..], [0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 3]);
    }
}
