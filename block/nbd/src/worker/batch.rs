//! Small answers, one behind the other in one buffer, so that they go in one call.

use thermo_pool::{AcquireError, Buffer};

use super::SMALL;
use crate::client::Session;
use crate::client::outbox::Item;
use crate::protocol::reply::{Head, LONGEST_HEAD, MOST_EXTENTS, block_status};
use crate::protocol::request::{Command, Refusal, Request};

/// Answers held back at most before they are sent: the client has something to do while the next are made.
const BATCH: usize = 64 << 10;
/// The longest answer to a question for what is stored.
const STATUS: usize = LONGEST_HEAD + MOST_EXTENTS * 8;

/// Answers that were not sent yet.
#[derive(Debug, Default)]
pub(super) struct Batch {
    buffer: Option<Buffer>,
    end: usize,
}

impl Batch {
    /// The room that the answer takes.
    pub(super) fn need(request: &Request) -> usize {
        match request.command {
            // A longer one is here only to be refused.
            Command::Read if request.length as usize <= SMALL => LONGEST_HEAD + request.length as usize,
            Command::BlockStatus => STATUS,
            _ => LONGEST_HEAD,
        }
    }

    /// True when there is room for so much.
    pub(super) fn has_room(&self, need: usize) -> bool {
        self.buffer
            .as_ref()
            .is_some_and(|buffer| buffer.len() - self.end >= need)
    }

    /// Gets an empty batch room: for one answer of `need` bytes or, where `more` follow, for several.
    pub(super) fn open(
        &mut self,
        need: usize,
        more: bool,
        lend: &mut dyn FnMut(usize) -> Result<Buffer, AcquireError>,
    ) -> Result<(), AcquireError> {
        let several = if more { BATCH.max(need) } else { need };
        self.buffer =
            Some(lend(several).or_else(|error| if several > need { lend(need) } else { Err(error) })?);
        self.end = 0;
        Ok(())
    }

    /// What is to be sent, if there is something.
    pub(super) fn take(&mut self) -> Option<Item> {
        let end = std::mem::take(&mut self.end);
        let buffer = self.buffer.take()?;
        (end > 0).then_some(Item::Batch { buffer, sent: 0, end })
    }

    /// Adds the answer that something was done, or why not.
    pub(super) fn outcome(&mut self, session: &Session, request: &Request, outcome: Result<(), Refusal>) {
        self.add(Head::outcome(session.style, request.cookie, outcome).bytes());
    }

    /// Adds the answer to a small read.
    pub(super) fn read(&mut self, session: &Session, request: &Request) {
        let head = Head::data(
            session.style,
            request.cookie,
            request.offset,
            request.length,
            true,
        );
        let start = self.end + head.bytes().len();
        let Some(buffer) = &mut self.buffer else { return };
        let place = &mut buffer[start..start + request.length as usize];
        match session.export.read(place, request.offset) {
            Ok(()) => {
                self.add(head.bytes());
                self.end += request.length as usize;
            }
            Err(refusal) => self.outcome(session, request, Err(refusal)),
        }
    }

    /// Adds what is stored where.
    pub(super) fn status(&mut self, session: &Session, request: &Request) {
        let most = if request.one { 1 } else { MOST_EXTENTS };
        let extents = session.export.extents(request.offset, request.length, most);
        self.add(&block_status(request.cookie, &extents));
    }

    fn add(&mut self, bytes: &[u8]) {
        if let Some(buffer) = &mut self.buffer {
            buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
            self.end += bytes.len();
        }
    }
}
