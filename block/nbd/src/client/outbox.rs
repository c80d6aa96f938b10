//! Answers on their way to a client: one thread at a time sends, the others put theirs behind and go on.
//!
//! So large reads overlap: while one thread copies into the socket, another reads the next piece from storage.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thermo_pool::Buffer;

use super::read_job::{Lend, NotLoaded, ReadJob};
use crate::export::Export;
use crate::wire::Wire;

/// Something to be sent.
#[derive(Debug)]
pub(crate) enum Item {
    /// Words of the negotiation.
    Words { bytes: Vec<u8>, sent: usize },
    /// Small answers, one behind the other.
    Batch { buffer: Buffer, sent: usize, end: usize },
    /// A large read.
    Read(Box<ReadJob>),
}

impl Item {
    fn held(&self) -> usize {
        match self {
            Self::Words { bytes, .. } => bytes.len(),
            Self::Batch { buffer, .. } => buffer.capacity(),
            Self::Read(job) => job.held(),
        }
    }

    // Sends some of it; true when nothing is left.
    fn send(&mut self, wire: &Wire) -> io::Result<bool> {
        match self {
            Self::Words { bytes, sent } => {
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
    /// A thread sends.
    busy: bool,
    /// The socket took no more.
    blocked: bool,
    held: usize,
}

/// How sending ended.
#[derive(Debug)]
pub(crate) enum Sent {
    /// Nothing is left.
    All,
    /// The socket takes no more now.
    Blocked,
    /// There is no memory for the next piece now.
    NoMemory,
    /// Another thread sends.
    Elsewhere,
}

/// Why the connection is to be closed.
#[derive(Debug)]
pub(crate) enum Broken {
    Socket(io::Error),
    HalfRead(crate::protocol::request::Refusal),
}

/// What stands in the way of new requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    /// The socket took no more.
    pub(crate) blocked: bool,
    /// A thread sends.
    pub(crate) busy: bool,
    /// Something waits to be sent.
    pub(crate) waits: bool,
    /// Bytes held by what waits.
    pub(crate) held: usize,
}

/// The answers of one client.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Queue>);

impl Outbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, item: Item) {
        let mut queue = self.queue();
        queue.held += item.held();
        queue.items.push_back(item);
    }

    /// Looks at what stands in the way, with the queue locked while `then` acts on it.
    pub(crate) fn with<T>(&self, then: impl FnOnce(Backlog) -> T) -> T {
        let queue = self.queue();
        then(Backlog {
            blocked: queue.blocked,
            busy: queue.busy,
            waits: !queue.items.is_empty(),
            held: queue.held,
        })
    }

    /// Sends until nothing is left or it cannot go on, unless another thread does already.
    pub(crate) fn pump(&self, wire: &Wire, export: Option<&Export>, lend: Lend<'_>) -> Result<Sent, Broken> {
        let mut queue = self.queue();
        if queue.busy {
            return Ok(Sent::Elsewhere);
        }
        queue.busy = true;
        queue.blocked = false;
        loop {
            let Some(mut item) = queue.items.pop_front() else {
                return self.rest(queue, wire);
            };
            queue.held = queue.held.saturating_sub(item.held());
            drop(queue);
            let outcome = transmit(&mut item, wire, export, lend);
            queue = self.queue();
            match outcome {
                Ok(true) => {}
                Ok(false) => {
                    queue.blocked = true;
                    return Ok(put_back(queue, item, Sent::Blocked));
                }
                Err(Stuck::NoMemory) => return Ok(put_back(queue, item, Sent::NoMemory)),
                Err(Stuck::Broken(broken)) => {
                    queue.busy = false;
                    return Err(broken);
                }
            }
        }
    }

    // All items are with the wire; encryption may hold a rest.
    fn rest(&self, mut queue: MutexGuard<'_, Queue>, wire: &Wire) -> Result<Sent, Broken> {
        queue.busy = false;
        queue.blocked = wire.is_behind().map_err(Broken::Socket)?;
        Ok(if queue.blocked { Sent::Blocked } else { Sent::All })
    }

    /// Drops what can be read again; tells whether there was any.
    pub(crate) fn unload(&self) -> bool {
        let mut queue = self.queue();
        let before = queue.held;
        for item in &mut queue.items {
            if let Item::Read(job) = item {
                job.unload();
            }
        }
        queue.held = queue.items.iter().map(Item::held).sum();
        queue.held < before
    }

    /// Forgets everything: the client is gone.
    pub(crate) fn clear(&self) {
        let mut queue = self.queue();
        queue.items.clear();
        queue.held = 0;
    }
}

enum Stuck {
    NoMemory,
    Broken(Broken),
}

fn put_back(mut queue: MutexGuard<'_, Queue>, item: Item, why: Sent) -> Sent {
    queue.held += item.held();
    queue.items.push_front(item);
    queue.busy = false;
    why
}

// Sends one item as far as the socket takes it: true when it is gone, false when the socket takes no more.
fn transmit(item: &mut Item, wire: &Wire, export: Option<&Export>, lend: Lend<'_>) -> Result<bool, Stuck> {
    loop {
        if let (Item::Read(job), Some(export)) = (&mut *item, export) {
            job.load(export, lend).map_err(|error| match error {
                NotLoaded::NoMemory => Stuck::NoMemory,
                NotLoaded::HalfRead(refusal) => Stuck::Broken(Broken::HalfRead(refusal)),
            })?;
        }
        match item.send(wire) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(Stuck::Broken(Broken::Socket(error))),
        }
    }
}
