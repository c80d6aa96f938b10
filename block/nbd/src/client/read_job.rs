//! The reply to a large read, one chunk at a time.
//!
//! A chunk is read from storage just before it is sent, and can be dropped and read again. So under memory
//! pressure, a client that does not receive its replies holds no buffer.

use std::io::IoSlice;

use thermo_pool::{AcquireError, Buffer};

use crate::export::Export;
use crate::protocol::reply::{ReplyHeader, ReplyStyle};
use crate::protocol::request::{NbdError, Request};

/// Requests are processed in chunks of at most this many bytes: the largest buffer of a request.
pub const CHUNK_SIZE: usize = 256 << 10;
/// Chunk size when no buffer of the full size is free.
const SMALL_CHUNK_SIZE: usize = 32 << 10;

/// Acquires a buffer: from a worker's cache, or from a pool.
pub(crate) type AcquireBuffer<'a> = &'a mut dyn FnMut(usize) -> Result<Buffer, AcquireError>;

/// The next chunk could not be loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// No memory is free.
    NoMemory,
    /// Storage failed after part of the reply was sent, so the error cannot be reported to the client.
    PartialRead(NbdError),
}

#[derive(Debug)]
struct Chunk {
    buffer: Buffer,
    sent: usize,
}

/// The progress of a read.
#[derive(Debug)]
pub(crate) struct ReadJob {
    cookie: u64,
    style: ReplyStyle,
    /// Reply in one chunk: the client set DF, or simple replies are in use.
    single_chunk: bool,
    at: u64,
    end: u64,
    /// Bytes announced in a header but not loaded yet.
    announced: u64,
    header: ReplyHeader,
    header_sent: usize,
    chunk: Option<Chunk>,
}

impl ReadJob {
    pub(crate) fn new(request: &Request, style: ReplyStyle) -> Self {
        Self {
            cookie: request.cookie,
            style,
            single_chunk: request.dont_fragment || style == ReplyStyle::Simple,
            at: request.offset,
            end: request.offset + u64::from(request.length),
            announced: 0,
            header: ReplyHeader::default(),
            header_sent: 0,
            chunk: None,
        }
    }

    /// Whether data is ready to be sent.
    pub(crate) fn is_loaded(&self) -> bool {
        self.chunk.is_some() || self.header_sent < self.header.bytes().len()
    }

    /// Whether the whole reply was sent.
    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.end && !self.is_loaded()
    }

    /// Size of the buffer held, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.chunk.as_ref().map_or(0, |chunk| chunk.buffer.capacity())
    }

    /// Loads the next chunk.
    pub(crate) fn load(&mut self, export: &Export, acquire: AcquireBuffer<'_>) -> Result<(), LoadError> {
        if self.is_loaded() && self.announced == 0 || self.at >= self.end || self.chunk.is_some() {
            return Ok(());
        }
        let left = if self.announced > 0 {
            self.announced
        } else {
            self.end - self.at
        };
        let wanted_len = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_SIZE);
        if self.announced == 0 && !self.single_chunk && export.is_hole(self.at, wanted_len as u64) {
            self.skip_hole(wanted_len);
            return Ok(());
        }
        let acquired = acquire(wanted_len).or_else(|error| {
            if wanted_len > SMALL_CHUNK_SIZE {
                acquire(SMALL_CHUNK_SIZE)
            } else {
                Err(error)
            }
        });
        let Ok(mut buffer) = acquired else {
            return Err(LoadError::NoMemory);
        };
        match export.read(&mut buffer, self.at) {
            Ok(()) => {
                self.announce(buffer.len());
                self.at += buffer.len() as u64;
                self.chunk = Some(Chunk { buffer, sent: 0 });
                Ok(())
            }
            Err(error) if self.announced == 0 => {
                self.set_header(ReplyHeader::outcome(self.style, self.cookie, Err(error)));
                self.at = self.end;
                Ok(())
            }
            Err(error) => Err(LoadError::PartialRead(error)),
        }
    }

    fn announce(&mut self, len: usize) {
        if self.announced == 0 {
            let rest = self.end - self.at;
            let announced_len = if self.single_chunk { rest } else { len as u64 };
            let len = u32::try_from(announced_len).unwrap_or(u32::MAX);
            self.set_header(ReplyHeader::data(
                self.style,
                self.cookie,
                self.at,
                len,
                announced_len == rest,
            ));
            self.announced = announced_len;
        }
        self.announced -= len as u64;
    }

    fn skip_hole(&mut self, len: usize) {
        let end = self.at + len as u64;
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.set_header(ReplyHeader::hole(self.cookie, self.at, len, end == self.end));
        self.at = end;
    }

    fn set_header(&mut self, header: ReplyHeader) {
        self.header = header;
        self.header_sent = 0;
    }

    /// The data to send next: header and chunk.
    pub(crate) fn parts(&self) -> [IoSlice<'_>; 2] {
        let chunk = self
            .chunk
            .as_ref()
            .map_or(&[][..], |chunk| &chunk.buffer[chunk.sent..]);
        [
            IoSlice::new(&self.header.bytes()[self.header_sent..]),
            IoSlice::new(chunk),
        ]
    }

    /// Marks `sent` bytes as sent. Frees the buffer of a chunk that was sent completely.
    pub(crate) fn advance(&mut self, mut sent: usize) {
        let header_part = sent.min(self.header.bytes().len() - self.header_sent);
        self.header_sent += header_part;
        sent -= header_part;
        if let Some(chunk) = &mut self.chunk {
            chunk.sent += sent;
            if chunk.sent >= chunk.buffer.len() {
                self.chunk = None;
            }
        }
    }

    /// Drops the loaded chunk. It is read again when it is sent.
    pub(crate) fn drop_buffers(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            let unsent = (chunk.buffer.len() - chunk.sent) as u64;
            self.at -= unsent;
            self.announced += unsent;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::protocol::request::Command;
    use thermo_pool::{Pools, Settings};
    use thermo_units::Bytes;

    const SIZE: usize = CHUNK_SIZE * 2 + 100;

    fn request(length: usize, dont_fragment: bool) -> Request {
        Request {
            command: Command::Read,
            fua: false,
            no_hole: false,
            dont_fragment,
            one_extent: false,
            fast_zero: false,
            unknown_flags: false,
            cookie: 7,
            offset: 5,
            length: u32::try_from(length).unwrap(),
        }
    }

    // The whole reply when the socket accepts `step` bytes at a time and the chunk is dropped every third
    // time.
    fn sent(export: &Export, request: &Request, style: ReplyStyle, step: usize) -> Vec<u8> {
        let pools = Pools::new(Bytes::mib(1), Settings::default());
        let pool = pools.open("x", Bytes(CHUNK_SIZE as u64)).unwrap();
        let mut job = ReadJob::new(request, style);
        let (mut out, mut iteration) = (Vec::new(), 0);
        while !job.is_done() {
            job.load(export, &mut |len| pool.try_acquire(len)).unwrap();
            let now: Vec<u8> = job.parts().iter().flat_map(|part| part.to_vec()).collect();
            let taken = now.len().min(step);
            out.extend(&now[..taken]);
            job.advance(taken);
            iteration += 1;
            if iteration % 3 == 0 {
                job.drop_buffers();
                assert_eq!(
                    (
                        job.held_bytes(),
                        pool.stats().held_pages - pool.stats().free_pages
                    ),
                    (0, 0)
                );
            }
        }
        out
    }

    fn export() -> (tempfile::TempDir, Export, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..SIZE).map(|at| (at % 251 + 1) as u8).collect();
        std::fs::write(dir.path().join("disk"), &bytes).unwrap();
        let export = Export::open("x", &dir.path().join("disk"), true).unwrap();
        (dir, export, bytes)
    }

    #[test]
    fn reply_holds_data_for_any_send_size() {
        let (_dir, export, bytes) = export();
        for step in [30_000, 70_001, usize::MAX] {
            let request = request(SIZE - 5, true);
            let simple = sent(&export, &request, ReplyStyle::Simple, step);
            assert_eq!((simple.len(), &simple[16..]), (SIZE - 5 + 16, &bytes[5..]));
            let whole = sent(&export, &request, ReplyStyle::Structured, step);
            assert_eq!((whole.len(), &whole[28..]), (SIZE - 5 + 28, &bytes[5..]));
        }
    }

    #[test]
    fn structured_chunks_join_to_data() {
        let (_dir, export, bytes) = export();
        let reply = sent(&export, &request(SIZE - 5, false), ReplyStyle::Structured, 50_000);
        let (mut rest, mut joined, mut done) = (&reply[..], Vec::<u8>::new(), false);
        while !rest.is_empty() {
            assert!(!done, "a chunk follows the last one");
            done = rest[5] == 1;
            let len = u32::from_be_bytes(rest[16..20].try_into().unwrap()) as usize;
            let offset = u64::from_be_bytes(rest[20..28].try_into().unwrap());
            assert_eq!(offset as usize, joined.len() + 5);
            joined.extend(&rest[28..20 + len]);
            rest = &rest[20 + len..];
        }
        assert!(done && joined == bytes[5..]);
    }

    #[test]
    fn holes_are_reported_not_sent() {
        let export = Export::memory("x", Bytes::mib(1), false).unwrap();
        let reply = sent(
            &export,
            &request(CHUNK_SIZE * 2, false),
            ReplyStyle::Structured,
            usize::MAX,
        );
        assert_eq!(reply.len(), 64);
        assert_eq!((reply[5], reply[7], reply[32 + 5], reply[32 + 7]), (0, 2, 1, 2));
    }

    #[test]
    fn error_before_first_byte_is_reported() {
        let (dir, export, _) = export();
        std::fs::File::options()
            .write(true)
            .open(dir.path().join("disk"))
            .unwrap()
            .set_len(10)
            .unwrap();
        let reply = sent(
            &export,
            &request(CHUNK_SIZE, false),
            ReplyStyle::Structured,
            usize::MAX,
        );
        assert_eq!(reply[6..8], [0x80, 1]);
    }
}
