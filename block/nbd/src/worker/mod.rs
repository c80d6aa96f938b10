//! A worker: waits for clients that have something for it, and serves one after the other.
//!
//! A client is armed for one event at a time, so it comes to one worker. That worker answers what has come; before it
//! begins something that takes long it arms the client again, so that another worker may read on meanwhile. No worker
//! ever waits for memory: a client whose request finds none stands in a queue, with nothing read that is not paid for.

mod batch;
mod inbox;
mod payload;
mod task;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use thermo_pool::{AcquireError, Buffer, Cache};

use crate::client::outbox::Sent;
use crate::client::{Client, ConnectionError, Session};
use crate::server::shared::{STOP, Shared};
use inbox::Step;

/// What is read of a client at once.
const INPUT: usize = 64 << 10;
/// Requests up to this many bytes are answered where they are found; larger ones are taken out.
const SMALL: usize = 16 << 10;
/// Clients in the queue for memory are looked at this often, should nobody who gave some back have done so.
const RETRY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 2_000_000,
};

/// The caches of one worker, an export each.
#[derive(Debug, Default)]
struct Caches(BTreeMap<usize, Cache>);

impl Caches {
    fn of(&mut self, session: &Session) -> &Cache {
        self.0
            .entry(session.index)
            .or_insert_with(|| session.pool.cache())
    }

    fn lend(&mut self, session: Option<&Session>, len: usize) -> Result<Buffer, AcquireError> {
        match session {
            Some(session) => self.of(session).try_acquire(len),
            // Nothing is lent before an export is chosen.
            None => Err(AcquireError::TooLarge {
                name: String::new(),
                asked: thermo_units::Bytes(len as u64),
                largest: thermo_units::Bytes::ZERO,
            }),
        }
    }
}

/// What is to be done with a client when a worker leaves it.
enum Leave {
    /// Wait for its next event.
    Arm,
    /// Wait for memory.
    Park,
    /// Another worker does what is to be done.
    Nothing,
}

pub(crate) struct Worker {
    shared: Arc<Shared>,
    input: Vec<u8>,
    caches: Caches,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            input: vec![0; INPUT],
            caches: Caches::default(),
        }
    }

    /// Serves until the server ends.
    pub(crate) fn run(&mut self) {
        let mut events = [epoll::Event {
            flags: EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        loop {
            let timeout = (self.shared.parked.is_waited_in()).then_some(&RETRY);
            match epoll::wait(&self.shared.epoll, &mut events[..], timeout) {
                Ok(0) => {}
                Ok(_) if events[0].data.u64() == STOP => return,
                Ok(_) => {
                    if let Some(client) = self.shared.client(events[0].data.u64()) {
                        self.serve(&client);
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return self.shared.note(&io::Error::from(errno)),
            }
            self.serve_parked();
        }
    }

    // Each that stands in the queue once; the first that still finds no memory ends it.
    fn serve_parked(&mut self) {
        for _ in 0..self.shared.parked.len() {
            let Some(client) = self.shared.parked.pop() else {
                return;
            };
            self.serve(&client);
            if client.parked.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    fn serve(&mut self, client: &Arc<Client>) {
        client.running.fetch_add(1, Ordering::SeqCst);
        client.waits_for_it(false);
        match self.work(client) {
            Ok(Leave::Arm) => self.shared.arm(client),
            Ok(Leave::Park) => self.shared.parked.push(client),
            Ok(Leave::Nothing) => {}
            Err(error) => {
                self.shared.note(&error);
                client.hang_up();
            }
        }
        if let Some(session) = client.session.get() {
            self.caches.of(session).end_batch();
        }
        if client.running.fetch_sub(1, Ordering::SeqCst) == 1 && client.is_over() {
            self.shared.remove(client);
        }
    }

    fn work(&mut self, client: &Arc<Client>) -> Result<Leave, ConnectionError> {
        match self.pump(client)? {
            Sent::Blocked => return Ok(Leave::Arm),
            Sent::NoMemory => return Ok(Leave::Park),
            Sent::All | Sent::Elsewhere => {}
        }
        if client.ended.load(Ordering::SeqCst) {
            return Ok(Leave::Arm);
        }
        let Ok(mut inbox) = client.inbox.try_lock() else {
            // Whoever has it arms the client when it is done.
            return Ok(Leave::Nothing);
        };
        let step = self.read(client, &mut inbox)?;
        client.midway.store(inbox.is_midway(), Ordering::SeqCst);
        client
            .more
            .store(matches!(step, Step::Task(_, true)), Ordering::SeqCst);
        drop(inbox);
        match step {
            Step::Wait => Ok(Leave::Arm),
            Step::Park => Ok(Leave::Park),
            Step::End => {
                client.ended.store(true, Ordering::SeqCst);
                Ok(Leave::Arm)
            }
            Step::Task(task, _) => {
                self.shared.arm(client);
                if !self.perform(client, *task)? {
                    return Ok(Leave::Park);
                }
                Ok(match self.pump(client)? {
                    Sent::NoMemory => Leave::Park,
                    _ => Leave::Arm,
                })
            }
        }
    }

    fn pump(&mut self, client: &Client) -> Result<Sent, ConnectionError> {
        let session = client.session.get();
        let export = session.map(|session| &*session.export);
        let caches = &mut self.caches;
        Ok(client
            .outbox
            .pump(&client.wire, export, &mut |len| caches.lend(session, len))?)
    }
}
