//! One machine at a disk: what the vhost-user messages set, and the queues that its kicks tell of.
//!
//! The messages themselves, the mapping of the guest's memory and the threads are those of `vhost-user-backend`. A
//! queue is done in order, one request after the other, so its used index tells exactly what was done: a machine that
//! finds its server gone can connect to a new one and go on from there.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use thermo_pool::Cache;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackend, VringMutex, VringT as _};
use virtio_queue::QueueOwnedT as _;
use vm_memory::{GuestAddressSpace as _, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};

use super::Device;
use super::chain::Chain;
use super::config::{self, QUEUES};
use super::request::Disk;
use crate::server::shared::locked;

/// Threads for the queues of one machine, which share them evenly.
const THREADS: usize = 2;
/// Requests that a queue may hold.
const QUEUE_SIZE: usize = 1024;

pub(super) type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// What a machine agreed on, and what serves it.
#[derive(Debug)]
pub(super) struct Session {
    device: Arc<Device>,
    memory: Memory,
    /// One for each thread; nobody else takes it.
    caches: Vec<Mutex<Cache>>,
    writes_through: AtomicBool,
    /// The machine is gone; whatever its memory still says is not for us.
    pub(super) is_over: AtomicBool,
}

impl Session {
    pub(super) fn new(device: &Arc<Device>, memory: Memory) -> Self {
        Self {
            device: Arc::clone(device),
            memory,
            caches: (0..THREADS).map(|_| Mutex::new(device.pool.cache())).collect(),
            writes_through: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
        }
    }

    // Does what is in a queue, and what comes meanwhile.
    fn drain(&self, ring: &VringMutex, cache: &Cache) -> Result<(), virtio_queue::Error> {
        let mut was_told = false;
        loop {
            ring.disable_notification()?;
            let mut any = false;
            while self.next(ring, cache)? {
                any = true;
            }
            // A ring that tells of more and then has none is broken, or was stopped: its next kick brings us back.
            if !ring.enable_notification()? || was_told && !any {
                return Ok(());
            }
            was_told = true;
        }
    }

    // Does one request; false when there is none, or no more are to be done.
    fn next(&self, ring: &VringMutex, cache: &Cache) -> Result<bool, virtio_queue::Error> {
        // Held while the request is done: who closes the door waits for it, and so does the message that stops the ring.
        let door = self.device.door();
        let mut ring = ring.get_mut();
        if !*door || self.is_over.load(Ordering::SeqCst) || !ring.is_enabled() {
            return Ok(false);
        }
        let memory = self.memory.memory();
        let Some(found) = ring.get_queue_mut().iter(memory.clone())?.next() else {
            return Ok(false);
        };
        let head = found.head_index();
        let disk = Disk {
            export: &self.device.export,
            writes_through: self.writes_through.load(Ordering::Relaxed),
            counts: &self.device.shared.counts,
        };
        let written =
            Chain::read(&memory, found).map_or(0, |chain| disk.answer(chain, &mut |len| cache.acquire(len)));
        ring.add_used(head, written)?;
        if ring.needs_notification()? && ring.signal_used_queue().is_err() {
            return Ok(false);
        }
        Ok(true)
    }
}

impl VhostUserBackend for Session {
    type Bitmap = ();
    type Vring = VringMutex;

    fn num_queues(&self) -> usize {
        usize::from(QUEUES)
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE
    }

    fn features(&self) -> u64 {
        config::features(&self.device.export) | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn acked_features(&self, features: u64) {
        self.writes_through
            .store(!config::flushes(features), Ordering::Relaxed);
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
    }

    fn set_event_idx(&self, _: bool) {}

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        config::part(&config::space(&self.device.export), offset, size)
    }

    fn set_config(&self, _: u32, _: &[u8]) -> io::Result<()> {
        // Its one field that could be written, the cache's mode, is not offered.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn update_memory(&self, _: Memory) -> io::Result<()> {
        // It is the one we have.
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        let of = |thread| (thread..usize::from(QUEUES)).step_by(THREADS);
        (0..THREADS)
            .map(|thread| of(thread).fold(0, |queues, queue| queues | 1 << queue))
            .collect()
    }

    fn exit_event(&self, _: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }

    // An error would end the thread, and with it all queues that it has; one is told, and the others go on.
    fn handle_event(&self, queue: u16, _: EventSet, rings: &[VringMutex], thread: usize) -> io::Result<()> {
        let (Some(ring), Some(cache)) = (rings.get(usize::from(queue)), self.caches.get(thread)) else {
            return Ok(());
        };
        let cache = locked(cache);
        if let Err(error) = self.drain(ring, &cache) {
            self.device.note(&format_args!("a queue cannot be used: {error}"));
        }
        cache.end_batch();
        Ok(())
    }
}
