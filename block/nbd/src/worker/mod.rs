//! A worker thread: waits for events of clients and serves one client after the other.
//!
//! A client is armed for one event at a time, so exactly one worker receives it. The worker answers all small
//! requests that have arrived. Before a long operation it arms the client again, so that another worker can
//! read further requests. No worker waits for memory: a client whose request finds no memory is queued, and
//! nothing more is read from it.

mod batch;
mod inbox;
mod payload;
mod task;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use thermo_pool::{AcquireError, Buffer, Cache};

use crate::client::outbox::Sent;
use crate::client::{Client, ConnectionError, Session};
use crate::server::shared::{STOP, Shared};
use inbox::Step;

/// Bytes read from a client at once.
const INPUT_BUFFER: usize = 64 << 10;
/// Requests of up to this many bytes are answered at once; larger ones become tasks.
const MAX_INLINE: usize = 16 << 10;
/// Polling interval of the queue for memory, in case no worker that frees memory serves it.
const MEMORY_POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 2_000_000,
};

/// The buffer caches of one worker, one for each export.
#[derive(Debug, Default)]
struct Caches(BTreeMap<usize, Cache>);

impl Caches {
    fn of(&mut self, session: &Session) -> &Cache {
        self.0
            .entry(session.index)
            .or_insert_with(|| session.pool.cache())
    }

    fn acquire(&mut self, session: Option<&Session>, len: usize) -> Result<Buffer, AcquireError> {
        match session {
            Some(session) => self.of(session).try_acquire(len),
            // Before an export is chosen, no buffer is needed.
            None => Err(AcquireError::TooLarge {
                name: String::new(),
                requested: thermo_units::Bytes(len as u64),
                max_request: thermo_units::Bytes::ZERO,
            }),
        }
    }
}

/// The next action for a client after a worker served it.
enum NextAction {
    /// Wait for the next event of the client.
    Arm,
    /// Wait for memory.
    WaitForMemory,
    /// Another worker continues.
    None,
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
            input: vec![0; INPUT_BUFFER],
            caches: Caches::default(),
        }
    }

    /// Serves clients until the server stops.
    pub(crate) fn run(&mut self) {
        let mut events = [epoll::Event {
            flags: EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        loop {
            let timeout = (self.shared.memory_queue.has_waiters()).then_some(&MEMORY_POLL_INTERVAL);
            match epoll::wait(&self.shared.epoll, &mut events[..], timeout) {
                Ok(0) => {}
                Ok(_) if events[0].data.u64() == STOP => return,
                Ok(_) => {
                    if let Some(client) = self.shared.client(events[0].data.u64()) {
                        self.serve(&client);
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                // epoll_wait(2) has no other error for a valid descriptor. A worker that ended would be
                // missed by nobody but its clients.
                Err(errno) => panic!("cannot wait for clients: {errno}"),
            }
            self.serve_waiting();
        }
    }

    // Serves each queued client once. Stops at the first that still finds no memory.
    fn serve_waiting(&mut self) {
        for _ in 0..self.shared.memory_queue.len() {
            let Some(client) = self.shared.memory_queue.pop() else {
                return;
            };
            self.serve(&client);
            if client.waiting_for_memory.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    fn serve(&mut self, client: &Arc<Client>) {
        client.active_workers.fetch_add(1, Ordering::SeqCst);
        match self.work(client) {
            Ok(NextAction::Arm) => self.shared.arm(client),
            Ok(NextAction::WaitForMemory) => self.shared.memory_queue.push(client),
            Ok(NextAction::None) => {}
            Err(error) => {
                self.shared.record_error(&error);
                client.disconnect();
            }
        }
        if let Some(session) = client.session.get() {
            self.caches.of(session).end_batch();
        }
        if client.active_workers.fetch_sub(1, Ordering::SeqCst) == 1 && client.is_finished() {
            self.shared.remove(client);
        }
    }

    fn work(&mut self, client: &Arc<Client>) -> Result<NextAction, ConnectionError> {
        match self.send_queued(client)? {
            Sent::Blocked => return Ok(NextAction::Arm),
            Sent::NoMemory => return Ok(NextAction::WaitForMemory),
            Sent::All | Sent::InProgress => {}
        }
        if client.ended.load(Ordering::SeqCst) {
            return Ok(NextAction::Arm);
        }
        let Ok(mut inbox) = client.inbox.try_lock() else {
            // The worker that holds the inbox arms the client when done.
            return Ok(NextAction::None);
        };
        let step = self.read(client, &mut inbox)?;
        client.incomplete.store(inbox.is_incomplete(), Ordering::SeqCst);
        client
            .has_buffered_request
            .store(matches!(step, Step::Task(_, true)), Ordering::SeqCst);
        drop(inbox);
        match step {
            Step::Wait => Ok(NextAction::Arm),
            Step::WaitForMemory => Ok(NextAction::WaitForMemory),
            Step::End => {
                client.ended.store(true, Ordering::SeqCst);
                Ok(NextAction::Arm)
            }
            Step::Task(task, _) => {
                self.shared.arm(client);
                if !self.perform(client, *task)? {
                    return Ok(NextAction::WaitForMemory);
                }
                Ok(match self.send_queued(client)? {
                    Sent::NoMemory => NextAction::WaitForMemory,
                    _ => NextAction::Arm,
                })
            }
        }
    }

    fn send_queued(&mut self, client: &Client) -> Result<Sent, ConnectionError> {
        let session = client.session.get();
        let export = session.map(|session| &*session.export);
        let caches = &mut self.caches;
        Ok(client
            .outbox
            .send_queued(&client.wire, export, &mut |len| caches.acquire(session, len))?)
    }
}
