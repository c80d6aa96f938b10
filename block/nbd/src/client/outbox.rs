//! Queued replies of a client. One thread at a time sends; other threads append their replies and continue.
//!
//! So large reads overlap: one thread copies into the socket while another reads the next chunk from storage.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thermo_pool::Buffer;

use super::read_job::{AcquireBuffer, LoadError, ReadJob};
use crate::export::Export;
use crate::wire::Wire;

/// A queued reply.
#[derive(Debug)]
pub(crate) enum Item {
    /// Handshake data or a reply without data.
    Bytes { bytes: Vec<u8>, sent: usize },
    /// Concatenated small replies.
    Batch { buffer: Buffer, sent: usize, end: usize },
    /// The reply to a large read.
    Read(Box<ReadJob>),
}

impl Item {
    fn held_bytes(&self) -> usize {
        match self {
            Self::Bytes { bytes, .. } => bytes.len(),
            Self::Batch { buffer, .. } => buffer.capacity(),
            Self::Read(job) => job.held_bytes(),
        }
    }

    // Sends part of the item. Returns true when nothing is left.
    fn send(&mut self, wire: &Wire) -> io::Result<bool> {
        match self {
            Self::Bytes { bytes, sent } => {
                *sent += wire.send(&[IoSlice::new(&bytes[*sent..])])?;
                Ok(*sent >= bytes.len())
            }
            Self::Batch { buffer, sent, end } => {
                *sent += wire.send(&[IoSlice::new(&buffer[*sent..*end])])?;
                Ok(*sent >= *end)
            }
            Self::Read(job) => {
                let sent = wire.send(&job.parts())?;
                job.advance(sent);
                Ok(job.is_done())
            }
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// A thread is sending.
    is_sending: bool,
    /// The socket is full.
    blocked: bool,
    held_bytes: usize,
}

/// The result of sending.
#[derive(Debug)]
pub(crate) enum Sent {
    /// Everything was sent.
    All,
    /// The socket is full.
    Blocked,
    /// No memory is free for the next chunk.
    NoMemory,
    /// Another thread is sending.
    InProgress,
}

/// An error that ends the connection.
#[derive(Debug)]
pub(crate) enum SendError {
    Socket(io::Error),
    PartialRead(crate::protocol::request::NbdError),
}

/// The state of the queue, which decides whether new requests are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    /// The socket is full.
    pub(crate) blocked: bool,
    /// A thread is sending.
    pub(crate) is_sending: bool,
    /// The queue is not empty.
    pub(crate) has_items: bool,
    /// Bytes of buffers held by queued replies.
    pub(crate) held_bytes: usize,
}

/// The queued replies of one client.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Queue>);

impl Outbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, item: Item) {
        let mut queue = self.queue();
        queue.held_bytes += item.held_bytes();
        queue.items.push_back(item);
    }

    /// Calls `then` with the state of the queue while the queue is locked.
    pub(crate) fn with<T>(&self, then: impl FnOnce(Backlog) -> T) -> T {
        let queue = self.queue();
        then(Backlog {
            blocked: queue.blocked,
            is_sending: queue.is_sending,
            has_items: !queue.items.is_empty(),
            held_bytes: queue.held_bytes,
        })
    }

    /// Sends until the queue is empty or sending blocks, unless another thread is sending.
    pub(crate) fn send_queued(
        &self,
        wire: &Wire,
        export: Option<&Export>,
        acquire: AcquireBuffer<'_>,
    ) -> Result<Sent, SendError> {
        let mut queue = self.queue();
        if queue.is_sending {
            return Ok(Sent::InProgress);
        }
        queue.is_sending = true;
        queue.blocked = false;
        loop {
            let Some(mut item) = queue.items.pop_front() else {
                return self.finish(queue, wire);
            };
            queue.held_bytes = queue.held_bytes.saturating_sub(item.held_bytes());
            drop(queue);
            let outcome = transmit(&mut item, wire, export, acquire);
            queue = self.queue();
            match outcome {
                Ok(true) => {}
                Ok(false) => {
                    queue.blocked = true;
                    return Ok(put_back(queue, item, Sent::Blocked));
                }
                Err(TransmitError::NoMemory) => return Ok(put_back(queue, item, Sent::NoMemory)),
                Err(TransmitError::SendError(error)) => {
                    queue.is_sending = false;
                    return Err(error);
                }
            }
        }
    }

    // All items were passed to the wire. TLS may hold unsent data.
    fn finish(&self, mut queue: MutexGuard<'_, Queue>, wire: &Wire) -> Result<Sent, SendError> {
        queue.is_sending = false;
        queue.blocked = wire.has_unsent().map_err(SendError::Socket)?;
        Ok(if queue.blocked { Sent::Blocked } else { Sent::All })
    }

    /// Drops chunks that can be read again. Returns whether any was dropped.
    pub(crate) fn drop_buffers(&self) -> bool {
        let mut queue = self.queue();
        let before = queue.held_bytes;
        for item in &mut queue.items {
            if let Item::Read(job) = item {
                job.drop_buffers();
            }
        }
        queue.held_bytes = queue.items.iter().map(Item::held_bytes).sum();
        queue.held_bytes < before
    }

    /// Discards all replies of a disconnected client.
    pub(crate) fn clear(&self) {
        let mut queue = self.queue();
        queue.items.clear();
        queue.held_bytes = 0;
    }
}

enum TransmitError {
    NoMemory,
    SendError(SendError),
}

fn put_back(mut queue: MutexGuard<'_, Queue>, item: Item, outcome: Sent) -> Sent {
    queue.held_bytes += item.held_bytes();
    queue.items.push_front(item);
    queue.is_sending = false;
    outcome
}

// Sends one item. Returns true when it is sent, false when the socket is full.
fn transmit(
    item: &mut Item,
    wire: &Wire,
    export: Option<&Export>,
    acquire: AcquireBuffer<'_>,
) -> Result<bool, TransmitError> {
    loop {
        if let (Item::Read(job), Some(export)) = (&mut *item, export) {
            job.load(export, acquire).map_err(|error| match error {
                LoadError::NoMemory => TransmitError::NoMemory,
                LoadError::PartialRead(error) => TransmitError::SendError(SendError::PartialRead(error)),
            })?;
        }
        match item.send(wire) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(TransmitError::SendError(SendError::Socket(error))),
        }
    }
}
