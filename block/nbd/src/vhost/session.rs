//! One connected virtual machine: settings made by vhost-user messages, and its request queues.
//!
//! `vhost-user-backend` handles the messages, the mapping of guest memory, and the threads. Requests of a
//! queue are processed in order, one at a time, so the used index is exact: after a crash of the server, a VM
//! can connect to a new one and continue.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use thermo_pool::Cache;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackend, VringMutex, VringT as _};
use virtio_queue::{QueueOwnedT as _, QueueT as _};
use vm_memory::{GuestAddressSpace as _, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};

use super::Device;
use super::chain::Chain;
use super::config::{self, QUEUES};
use super::memory;
use super::request::Disk;
use crate::lock::locked;

/// Number of threads for the queues of one VM, which share them evenly.
const THREADS: usize = 2;
/// Maximum number of requests in a queue.
const QUEUE_SIZE: usize = 1024;

type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// The negotiated state of a connection, and the resources that serve it.
#[derive(Debug)]
pub(super) struct Session {
    device: Arc<Device>,
    /// The memory that was checked. The library replaces its own copy before the check, so the queues must
    /// not use that.
    memory: Mutex<Arc<GuestMemoryMmap>>,
    /// One cache for each thread, so the locks are uncontended.
    caches: Vec<Mutex<Cache>>,
    writes_through: AtomicBool,
    /// The VM has disconnected. Its memory must not be used any more.
    pub(super) is_finished: AtomicBool,
}

impl Session {
    pub(super) fn new(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::clone(device),
            memory: Mutex::new(Arc::new(GuestMemoryMmap::new())),
            caches: (0..THREADS).map(|_| Mutex::new(device.pool.cache())).collect(),
            writes_through: AtomicBool::new(true),
            is_finished: AtomicBool::new(false),
        }
    }

    fn memory(&self) -> Arc<GuestMemoryMmap> {
        Arc::clone(&locked(&self.memory))
    }

    // Processes all requests of a queue, including those that arrive meanwhile.
    fn process_queue(&self, ring: &VringMutex, cache: &Cache) -> Result<(), virtio_queue::Error> {
        let mut was_notified = false;
        loop {
            ring.get_mut()
                .get_queue_mut()
                .disable_notification(&*self.memory())?;
            let mut processed = false;
            while self.process_next(ring, cache)? {
                processed = true;
            }
            // A ring that announces requests but has none is corrupt or was stopped. Its next kick resumes
            // it.
            let has_more = ring
                .get_mut()
                .get_queue_mut()
                .enable_notification(&*self.memory())?;
            if !has_more || was_notified && !processed {
                return Ok(());
            }
            was_notified = true;
        }
    }

    // Processes one request. False if there is none, or processing has stopped.
    fn process_next(&self, ring: &VringMutex, cache: &Cache) -> Result<bool, virtio_queue::Error> {
        // Held during the request: shutdown waits for it, and so does the message that stops the ring.
        let accepting = self.device.accepting();
        let mut ring = ring.get_mut();
        if !*accepting || self.is_finished.load(Ordering::SeqCst) || !ring.is_enabled() {
            return Ok(false);
        }
        let memory = self.memory();
        let Some(chain) = ring.get_queue_mut().iter(memory.clone())?.next() else {
            return Ok(false);
        };
        let head = chain.head_index();
        let disk = Disk {
            export: &self.device.export,
            writes_through: self.writes_through.load(Ordering::Relaxed),
            counters: &self.device.shared.counters,
        };
        let written =
            Chain::read(&memory, chain).map_or(0, |chain| disk.execute(chain, &mut |len| cache.acquire(len)));
        let queue = ring.get_queue_mut();
        queue.add_used(&*memory, head, written)?;
        if queue.needs_notification(&*memory)? && ring.signal_used_queue().is_err() {
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
            .store(!config::has_flush(features), Ordering::Relaxed);
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
    }

    fn set_event_idx(&self, _: bool) {}

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        config::read_config(&config::config_space(&self.device.export), offset, size)
    }

    fn set_config(&self, _: u32, _: &[u8]) -> io::Result<()> {
        // The only writable field, the cache mode, is not offered.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn update_memory(&self, memory: Memory) -> io::Result<()> {
        let memory = memory.memory().into_inner();
        if !self.device.shared.limits.allow_unsealed_memory {
            memory::check(&memory).map_err(io::Error::other)?;
        }
        *locked(&self.memory) = memory;
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        let queues_of = |thread| (thread..usize::from(QUEUES)).step_by(THREADS);
        (0..THREADS)
            .map(|thread| queues_of(thread).fold(0, |queues, queue| queues | 1 << queue))
            .collect()
    }

    fn exit_event(&self, _: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }

    // Returning an error would end the thread and with it all its queues. Record the error and continue.
    fn handle_event(&self, queue: u16, _: EventSet, rings: &[VringMutex], thread: usize) -> io::Result<()> {
        let (Some(ring), Some(cache)) = (rings.get(usize::from(queue)), self.caches.get(thread)) else {
            return Ok(());
        };
        let cache = locked(cache);
        if let Err(error) = self.process_queue(ring, &cache) {
            self.device.record_error(&format_args!("invalid queue: {error}"));
        }
        cache.end_batch();
        Ok(())
    }
}
