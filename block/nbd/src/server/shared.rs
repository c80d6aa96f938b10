//! State shared by the acceptor, the workers, and status queries.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use thermo_pool::Pool;

use super::Limits;
use crate::client::{Client, Session};
use crate::export::Export;
use crate::lock::locked;
use crate::protocol::handshake::{ChosenExport, Directory, ExportInfo};
use crate::tls::Encryption;
use crate::wire::Peer;

/// The epoll event that stops the workers.
pub(crate) const STOP: u64 = u64::MAX;

/// The exports with their pools.
#[derive(Debug)]
pub(crate) struct Exports(pub(crate) Vec<(Arc<Export>, Pool)>);

impl Directory for Exports {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        self.position(name).map(|index| self.0[index].0.info())
    }

    fn names(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(export, _)| export.name().to_owned())
            .collect()
    }
}

impl Exports {
    // The empty name means the default export: the one with the empty name, or else the first.
    fn position(&self, name: &str) -> Option<usize> {
        let named = self.0.iter().position(|(export, _)| export.name() == name);
        named.or_else(|| (name.is_empty() && !self.0.is_empty()).then_some(0))
    }

    /// The export with exactly this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Export>> {
        let mut all = self.0.iter().map(|(export, _)| export);
        all.find(|export| export.name() == name)
    }

    /// Names of the exports that lost writes.
    pub(crate) fn failed(&self) -> Vec<String> {
        let all = self.0.iter().map(|(export, _)| export);
        let failed = all.filter(|export| export.has_lost_writes());
        failed.map(|export| export.name().to_owned()).collect()
    }

    pub(crate) fn session(&self, chosen: &ChosenExport) -> Option<Session> {
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

/// Clients waiting for memory, in FIFO order.
#[derive(Debug, Default)]
pub(crate) struct MemoryQueue {
    queue: Mutex<VecDeque<Arc<Client>>>,
    waiting: AtomicUsize,
    /// Number of waits.
    pub(crate) wait_count: AtomicU64,
}

impl MemoryQueue {
    /// Whether any client waits.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn push(&self, client: &Arc<Client>) {
        if !client.waiting_for_memory.swap(true, Ordering::SeqCst) {
            // The client waits for the server now.
            client.set_waiting(false);
            let mut queue = locked(&self.queue);
            queue.push_back(Arc::clone(client));
            self.waiting.store(queue.len(), Ordering::SeqCst);
            self.wait_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn pop(&self) -> Option<Arc<Client>> {
        let mut queue = locked(&self.queue);
        let client = queue.pop_front()?;
        self.waiting.store(queue.len(), Ordering::SeqCst);
        client.waiting_for_memory.store(false, Ordering::SeqCst);
        Some(client)
    }
}

/// Counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) connection_errors: AtomicU64,
}

/// The shared state.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) exports: Exports,
    pub(crate) limits: Limits,
    pub(crate) encryption: Option<Encryption>,
    /// The epoll instance of the workers.
    pub(crate) epoll: OwnedFd,
    /// Pool for unparsed data of all clients.
    pub(crate) unparsed_pool: Pool,
    pub(crate) memory_queue: MemoryQueue,
    pub(crate) counters: Counters,
    /// Set when the server shuts down: no new clients.
    pub(crate) stop: AtomicBool,
    pub(crate) clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    pub(crate) client_removed: Condvar,
    pub(crate) last_error: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn client(&self, number: u64) -> Option<Arc<Client>> {
        locked(&self.clients).get(&number).cloned()
    }

    /// Whether `peer` may connect once more.
    pub(crate) fn admits(&self, peer: Peer) -> bool {
        let clients = locked(&self.clients);
        let of_peer = clients.values().filter(|client| client.peer == peer).count();
        self.limits.admit(clients.len(), of_peer)
    }

    pub(crate) fn record_error(&self, error: &dyn Display) {
        self.counters.connection_errors.fetch_add(1, Ordering::Relaxed);
        *locked(&self.last_error) = Some(error.to_string());
    }

    /// Arms the next epoll event of the client: writability while replies are blocked, else readability.
    pub(crate) fn arm(&self, client: &Arc<Client>) {
        let has_ended = client.ended.load(Ordering::SeqCst);
        let limit = usize::try_from(self.limits.client_bytes.0).unwrap_or(usize::MAX);
        let armed = client.outbox.with(|backlog| {
            let flags = if backlog.blocked {
                EventFlags::OUT
            } else if backlog.is_sending && backlog.held_bytes >= limit {
                // The sending thread arms the client afterwards.
                return Ok(());
            } else if backlog.has_items && !backlog.is_sending {
                self.memory_queue.push(client);
                return Ok(());
            } else if has_ended {
                return Ok(());
            } else if client.has_buffered_request.load(Ordering::SeqCst) {
                // A whole request is buffered already: poll for writability too, which fires at once.
                EventFlags::IN | EventFlags::OUT
            } else {
                EventFlags::IN
            };
            client.set_waiting(backlog.blocked || client.incomplete.load(Ordering::SeqCst));
            let data = EventData::new_u64(client.number);
            epoll::modify(&self.epoll, &client.wire, data, flags | EventFlags::ONESHOT)
        });
        match armed {
            // Not found: the client was removed meanwhile.
            Ok(()) | Err(Errno::NOENT) => {}
            // No event would ever wake a worker for it: it must not wait for ever.
            Err(error) => {
                self.record_error(&error);
                self.remove(client);
            }
        }
    }

    /// Adds a client, without arming an event.
    pub(crate) fn add_client(&self, client: &Arc<Client>) -> rustix::io::Result<()> {
        let data = EventData::new_u64(client.number);
        locked(&self.clients).insert(client.number, Arc::clone(client));
        epoll::add(&self.epoll, &client.wire, data, EventFlags::ONESHOT)
    }

    pub(crate) fn remove(&self, client: &Client) {
        let removed = locked(&self.clients).remove(&client.number);
        if removed.is_some() {
            // Closing also removes it, so errors do not matter.
            let _ = epoll::delete(&self.epoll, &client.wire);
            client.wire.shutdown(std::net::Shutdown::Both);
            self.client_removed.notify_all();
        }
    }

    pub(crate) fn all_clients(&self) -> Vec<Arc<Client>> {
        locked(&self.clients).values().cloned().collect()
    }
}
