//! What the door, the workers and whoever asks share.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll::{self, EventData, EventFlags};
use thermo_pool::Pool;

use super::Limits;
use crate::client::{Client, Session};
use crate::export::Export;
use crate::protocol::handshake::{Chosen, Directory, Facts};
use crate::tls::Encryption;

/// The event that ends the workers.
pub(crate) const STOP: u64 = u64::MAX;

/// What is served: exports with their pools.
#[derive(Debug)]
pub(crate) struct Exports(pub(crate) Vec<(Arc<Export>, Pool)>);

impl Directory for Exports {
    fn find(&self, name: &str) -> Option<Facts> {
        self.position(name).map(|index| self.0[index].0.facts())
    }

    fn names(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(export, _)| export.name().to_owned())
            .collect()
    }
}

impl Exports {
    // The empty name is the default export: the first, unless one is named so.
    fn position(&self, name: &str) -> Option<usize> {
        let named = self.0.iter().position(|(export, _)| export.name() == name);
        named.or_else(|| (name.is_empty() && !self.0.is_empty()).then_some(0))
    }

    /// The export of exactly this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Export>> {
        let mut all = self.0.iter().map(|(export, _)| export);
        all.find(|export| export.name() == name)
    }

    pub(crate) fn session(&self, chosen: &Chosen) -> Option<Session> {
        let index = self.position(&chosen.name)?;
        let (export, pool) = &self.0[index];
        Some(Session {
            export: Arc::clone(export),
            index,
            pool: pool.clone(),
            style: chosen.style,
            allocation: chosen.allocation,
        })
    }
}

/// Clients that wait for memory, in order.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    queue: Mutex<VecDeque<Arc<Client>>>,
    waiting: AtomicUsize,
    /// Times that one had to.
    pub(crate) times: AtomicU64,
}

impl Parked {
    /// True when somebody waits.
    pub(crate) fn is_waited_in(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn push(&self, client: &Arc<Client>) {
        if !client.parked.swap(true, Ordering::SeqCst) {
            let mut queue = locked(&self.queue);
            queue.push_back(Arc::clone(client));
            self.waiting.store(queue.len(), Ordering::SeqCst);
            self.times.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn pop(&self) -> Option<Arc<Client>> {
        let mut queue = locked(&self.queue);
        let client = queue.pop_front()?;
        self.waiting.store(queue.len(), Ordering::SeqCst);
        client.parked.store(false, Ordering::SeqCst);
        Some(client)
    }
}

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) broken: AtomicU64,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) exports: Exports,
    pub(crate) limits: Limits,
    pub(crate) encryption: Option<Encryption>,
    /// Where workers wait.
    pub(crate) epoll: OwnedFd,
    /// Bytes that were read and not understood, of all clients.
    pub(crate) stash: Pool,
    pub(crate) parked: Parked,
    pub(crate) counts: Counts,
    /// No more clients.
    pub(crate) stop: AtomicBool,
    pub(crate) clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    pub(crate) left: Condvar,
    pub(crate) last_error: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn client(&self, number: u64) -> Option<Arc<Client>> {
        locked(&self.clients).get(&number).cloned()
    }

    pub(crate) fn note(&self, error: &dyn Display) {
        self.counts.broken.fetch_add(1, Ordering::Relaxed);
        *locked(&self.last_error) = Some(error.to_string());
    }

    /// Waits for the client's next event: room for its answers before anything new of it.
    pub(crate) fn arm(&self, client: &Arc<Client>) {
        let has_ended = client.ended.load(Ordering::SeqCst);
        let limit = usize::try_from(self.limits.client_bytes.0).unwrap_or(usize::MAX);
        client.outbox.with(|backlog| {
            let flags = if backlog.blocked {
                EventFlags::OUT
            } else if backlog.busy && backlog.held >= limit {
                // Whoever sends arms it afterwards.
                return;
            } else if backlog.waits && !backlog.busy {
                return self.parked.push(client);
            } else if has_ended {
                return;
            } else if client.more.load(Ordering::SeqCst) {
                // Something is there already: room to send, which there is, makes it an event.
                EventFlags::IN | EventFlags::OUT
            } else {
                EventFlags::IN
            };
            client.waits_for_it(backlog.blocked || client.midway.load(Ordering::SeqCst));
            let data = EventData::new_u64(client.number);
            // It fails only for a client that was removed meanwhile.
            let _ = epoll::modify(&self.epoll, &client.wire, data, flags | EventFlags::ONESHOT);
        });
    }

    /// Takes in a client, which waits for nothing yet.
    pub(crate) fn admit(&self, client: &Arc<Client>) -> rustix::io::Result<()> {
        let data = EventData::new_u64(client.number);
        locked(&self.clients).insert(client.number, Arc::clone(client));
        epoll::add(&self.epoll, &client.wire, data, EventFlags::ONESHOT)
    }

    pub(crate) fn remove(&self, client: &Client) {
        let gone = locked(&self.clients).remove(&client.number);
        if gone.is_some() {
            // It may be gone from there: closing does it too.
            let _ = epoll::delete(&self.epoll, &client.wire);
            client.wire.shutdown(std::net::Shutdown::Both);
            self.left.notify_all();
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        locked(&self.clients).values().cloned().collect()
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
