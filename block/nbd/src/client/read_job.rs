//! The answer to a large read, piece by piece.
//!
//! A piece is read just before it is sent, and may be dropped and read again: when memory is short, a client that
//! does not take its answer holds none of it.

use std::io::IoSlice;

use thermo_pool::{AcquireError, Buffer};

use crate::export::Export;
use crate::protocol::reply::{Head, Style};
use crate::protocol::request::{Refusal, Request};

/// Requests are done in pieces of at most this many bytes: the largest buffer of a request.
pub const CHUNK: usize = 256 << 10;
/// What is tried when that much is not to be had.
const SMALL_CHUNK: usize = 32 << 10;

/// Lends buffers: a worker's cache, or the pool.
pub(crate) type Lend<'a> = &'a mut dyn FnMut(usize) -> Result<Buffer, AcquireError>;

/// Why no piece could be made ready.
#[derive(Debug)]
pub(crate) enum NotLoaded {
    /// There is no memory now.
    NoMemory,
    /// The storage failed when a part had been sent already, so that the client cannot be told.
    HalfRead(Refusal),
}

#[derive(Debug)]
struct Piece {
    buffer: Buffer,
    sent: usize,
}

/// A read, as far as it was answered.
#[derive(Debug)]
pub(crate) struct ReadJob {
    cookie: u64,
    style: Style,
    /// In one chunk: the client wants it so, or simple answers have no other form.
    whole: bool,
    at: u64,
    end: u64,
    /// Bytes that a head announced and no piece holds.
    promised: u64,
    head: Head,
    head_sent: usize,
    piece: Option<Piece>,
}

impl ReadJob {
    pub(crate) fn new(request: &Request, style: Style) -> Self {
        Self {
            cookie: request.cookie,
            style,
            whole: request.whole || style == Style::Simple,
            at: request.offset,
            end: request.offset + u64::from(request.length),
            promised: 0,
            head: Head::default(),
            head_sent: 0,
            piece: None,
        }
    }

    /// True when something is ready to be sent.
    pub(crate) fn is_loaded(&self) -> bool {
        self.piece.is_some() || self.head_sent < self.head.bytes().len()
    }

    /// True when nothing is left to be sent.
    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.end && !self.is_loaded()
    }

    /// Bytes of the piece that is held.
    pub(crate) fn held(&self) -> usize {
        self.piece.as_ref().map_or(0, |piece| piece.buffer.capacity())
    }

    /// Makes the next piece ready.
    pub(crate) fn load(&mut self, export: &Export, lend: Lend<'_>) -> Result<(), NotLoaded> {
        if self.is_loaded() && self.promised == 0 || self.at >= self.end || self.piece.is_some() {
            return Ok(());
        }
        let left = if self.promised > 0 {
            self.promised
        } else {
            self.end - self.at
        };
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK);
        if self.promised == 0 && !self.whole && export.is_hole(self.at, want as u64) {
            self.skip_hole(want);
            return Ok(());
        }
        let lent = lend(want).or_else(|error| {
            if want > SMALL_CHUNK {
                lend(SMALL_CHUNK)
            } else {
                Err(error)
            }
        });
        let Ok(mut buffer) = lent else {
            return Err(NotLoaded::NoMemory);
        };
        match export.read(&mut buffer, self.at) {
            Ok(()) => {
                self.announce(buffer.len());
                self.at += buffer.len() as u64;
                self.piece = Some(Piece { buffer, sent: 0 });
                Ok(())
            }
            Err(refusal) if self.promised == 0 => {
                self.set_head(Head::outcome(self.style, self.cookie, Err(refusal)));
                self.at = self.end;
                Ok(())
            }
            Err(refusal) => Err(NotLoaded::HalfRead(refusal)),
        }
    }

    fn announce(&mut self, len: usize) {
        if self.promised == 0 {
            let rest = self.end - self.at;
            let told = if self.whole { rest } else { len as u64 };
            let len = u32::try_from(told).unwrap_or(u32::MAX);
            self.set_head(Head::data(self.style, self.cookie, self.at, len, told == rest));
            self.promised = told;
        }
        self.promised -= len as u64;
    }

    fn skip_hole(&mut self, len: usize) {
        let end = self.at + len as u64;
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.set_head(Head::hole(self.cookie, self.at, len, end == self.end));
        self.at = end;
    }

    fn set_head(&mut self, head: Head) {
        self.head = head;
        self.head_sent = 0;
    }

    /// What is to be sent now.
    pub(crate) fn parts(&self) -> [IoSlice<'_>; 2] {
        let piece = self
            .piece
            .as_ref()
            .map_or(&[][..], |piece| &piece.buffer[piece.sent..]);
        [
            IoSlice::new(&self.head.bytes()[self.head_sent..]),
            IoSlice::new(piece),
        ]
    }

    /// So much of it was taken. A piece that is gone gives its buffer back.
    pub(crate) fn advance(&mut self, mut sent: usize) {
        let of_head = sent.min(self.head.bytes().len() - self.head_sent);
        self.head_sent += of_head;
        sent -= of_head;
        if let Some(piece) = &mut self.piece {
            piece.sent += sent;
            if piece.sent >= piece.buffer.len() {
                self.piece = None;
            }
        }
    }

    /// Drops the piece; it is read again when it is its turn.
    pub(crate) fn unload(&mut self) {
        if let Some(piece) = self.piece.take() {
            let unsent = (piece.buffer.len() - piece.sent) as u64;
            self.at -= unsent;
            self.promised += unsent;
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

    const SIZE: usize = CHUNK * 2 + 100;

    fn request(length: usize, whole: bool) -> Request {
        Request {
            command: Command::Read,
            fua: false,
            no_hole: false,
            whole,
            one: false,
            fast: false,
            unknown_flags: false,
            cookie: 7,
            offset: 5,
            length: u32::try_from(length).unwrap(),
        }
    }

    // All that is sent when the socket takes `step` bytes at a time and memory is wanted back every third time.
    fn sent(export: &Export, request: &Request, style: Style, step: usize) -> Vec<u8> {
        let pools = Pools::new(Bytes::mib(1), Settings::default());
        let pool = pools.open("x", Bytes(CHUNK as u64)).unwrap();
        let mut job = ReadJob::new(request, style);
        let (mut out, mut turn) = (Vec::new(), 0);
        while !job.is_done() {
            job.load(export, &mut |len| pool.try_acquire(len)).unwrap();
            let now: Vec<u8> = job.parts().iter().flat_map(|part| part.to_vec()).collect();
            let taken = now.len().min(step);
            out.extend(&now[..taken]);
            job.advance(taken);
            turn += 1;
            if turn % 3 == 0 {
                job.unload();
                assert_eq!(
                    (job.held(), pool.stats().held_pages - pool.stats().free_pages),
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
    fn however_it_is_cut_the_answer_holds_the_bytes() {
        let (_dir, export, bytes) = export();
        for step in [30_000, 70_001, usize::MAX] {
            let request = request(SIZE - 5, true);
            let simple = sent(&export, &request, Style::Simple, step);
            assert_eq!((simple.len(), &simple[16..]), (SIZE - 5 + 16, &bytes[5..]));
            let whole = sent(&export, &request, Style::Structured, step);
            assert_eq!((whole.len(), &whole[28..]), (SIZE - 5 + 28, &bytes[5..]));
        }
    }

    #[test]
    fn chunks_of_a_structured_answer_join_to_the_bytes() {
        let (_dir, export, bytes) = export();
        let answer = sent(&export, &request(SIZE - 5, false), Style::Structured, 50_000);
        let (mut rest, mut joined, mut done) = (&answer[..], Vec::<u8>::new(), false);
        while !rest.is_empty() {
            assert!(!done, "a chunk behind the last");
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
    fn holes_are_told_not_sent() {
        let export = Export::memory("x", Bytes::mib(1), false).unwrap();
        let answer = sent(&export, &request(CHUNK * 2, false), Style::Structured, usize::MAX);
        assert_eq!(answer.len(), 64);
        assert_eq!(
            (answer[5], answer[7], answer[32 + 5], answer[32 + 7]),
            (0, 2, 1, 2)
        );
    }

    #[test]
    fn a_failure_before_anything_was_sent_is_told() {
        let (dir, export, _) = export();
        std::fs::File::options()
            .write(true)
            .open(dir.path().join("disk"))
            .unwrap()
            .set_len(10)
            .unwrap();
        let answer = sent(&export, &request(CHUNK, false), Style::Structured, usize::MAX);
        assert_eq!(answer[6..8], [0x80, 1]);
    }
}
