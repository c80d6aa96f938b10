//! Small replies, collected in one buffer and sent with one system call.

use thermo_pool::{AcquireError, Buffer};

use super::MAX_INLINE;
use crate::client::Session;
use crate::client::outbox::Item;
use crate::protocol::reply::{MAX_EXTENTS, MAX_HEADER_LEN, ReplyHeader, block_status};
use crate::protocol::request::{Command, NbdError, Request};

/// Maximum size of a batch, in bytes, so that the client can process replies while more are made.
const MAX_BATCH: usize = 64 << 10;
/// Maximum reply to a block status request, in bytes.
const MAX_BLOCK_STATUS: usize = MAX_HEADER_LEN + MAX_EXTENTS * 8;

/// Replies not sent yet.
#[derive(Debug, Default)]
pub(super) struct Batch {
    buffer: Option<Buffer>,
    end: usize,
}

impl Batch {
    /// Size of the reply, in bytes.
    pub(super) fn reply_size(request: &Request) -> usize {
        match request.command {
            // A longer read is here only if it is rejected.
            Command::Read if request.length as usize <= MAX_INLINE => {
                MAX_HEADER_LEN + request.length as usize
            }
            Command::BlockStatus => MAX_BLOCK_STATUS,
            _ => MAX_HEADER_LEN,
        }
    }

    /// Whether `reply_size` bytes fit.
    pub(super) fn has_room(&self, reply_size: usize) -> bool {
        self.buffer
            .as_ref()
            .is_some_and(|buffer| buffer.len() - self.end >= reply_size)
    }

    /// Acquires a buffer for one reply of `reply_size` bytes or, if `more` requests follow, for several.
    pub(super) fn open(
        &mut self,
        reply_size: usize,
        more: bool,
        acquire: &mut dyn FnMut(usize) -> Result<Buffer, AcquireError>,
    ) -> Result<(), AcquireError> {
        let capacity = if more {
            MAX_BATCH.max(reply_size)
        } else {
            reply_size
        };
        self.buffer = Some(acquire(capacity).or_else(|error| {
            if capacity > reply_size {
                acquire(reply_size)
            } else {
                Err(error)
            }
        })?);
        self.end = 0;
        Ok(())
    }

    /// Takes the collected replies, if any.
    pub(super) fn take(&mut self) -> Option<Item> {
        let end = std::mem::take(&mut self.end);
        let buffer = self.buffer.take()?;
        (end > 0).then_some(Item::Batch { buffer, sent: 0, end })
    }

    /// Adds a reply without data: success or an error.
    pub(super) fn outcome(&mut self, session: &Session, request: &Request, outcome: Result<(), NbdError>) {
        self.add(ReplyHeader::outcome(session.style, request.cookie, outcome).bytes());
    }

    /// Adds the reply to a small read.
    pub(super) fn read(&mut self, session: &Session, request: &Request) {
        let header = ReplyHeader::data(
            session.style,
            request.cookie,
            request.offset,
            request.length,
            true,
        );
        let start = self.end + header.bytes().len();
        let Some(buffer) = &mut self.buffer else { return };
        let target = &mut buffer[start..start + request.length as usize];
        match session.export.read(target, request.offset) {
            Ok(()) => {
                self.add(header.bytes());
                self.end += request.length as usize;
            }
            Err(error) => self.outcome(session, request, Err(error)),
        }
    }

    /// Adds a block status reply.
    pub(super) fn status(&mut self, session: &Session, request: &Request) {
        let max_extents = if request.one_extent { 1 } else { MAX_EXTENTS };
        let extents = session
            .export
            .extents(request.offset, request.length, max_extents);
        self.add(&block_status(request.cookie, &extents));
    }

    fn add(&mut self, bytes: &[u8]) {
        if let Some(buffer) = &mut self.buffer {
            buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
            self.end += bytes.len();
        }
    }
}
