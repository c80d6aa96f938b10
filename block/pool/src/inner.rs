//! One pool: taking blocks, putting them back, and shrinking. [`crate::Pool`] and [`crate::Cache`] are its
//! public handles.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use thermo_kernel::clock;
use thermo_units::{Bytes, Nanos};

use crate::budget::{Budget, Grant, WaitPolicy};
use crate::class::{Class, pages};
use crate::depot::Depot;
use crate::error::AcquireError;
use crate::ledger::AccountId;
use crate::magazine::Magazine;
use crate::raw::{self, Block};
use crate::reclaim_batch::ReclaimBatch;
use crate::registry::Registry;
use crate::settings::AtomicSettings;
use crate::stats::{Counters, Stats, count};

/// Pages released in one batch. Large enough that the cost of the system calls is negligible; small enough
/// that a thread that shrinks a pool at the end of its batch returns to its requests soon.
const MAX_BATCH_PAGES: usize = 1024;

/// A handle to a pool, with the thread's magazine if it has one. A buffer returns to the magazine, or to the
/// depot.
#[derive(Debug)]
pub(crate) struct PoolHandle {
    pub(crate) pool: Arc<Inner>,
    magazine: Option<Magazine>,
    /// Counted per handle: incrementing a counter shared by threads would cost more than the hit itself.
    hits: AtomicU64,
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        count(
            &self.pool.counters.magazine_hits,
            usize::try_from(*self.hits.get_mut()).unwrap_or(usize::MAX),
        );
        if let Some(magazine) = &self.magazine {
            let mut batch = ReclaimBatch::with_target(usize::MAX);
            magazine.steal(&mut batch);
            self.pool.store_free(batch.blocks);
            // A request that began to wait meanwhile could not see the blocks of this magazine.
            if self.pool.budget().has_waiters_after_put() {
                self.pool.shrink(0);
            }
        }
    }
}

/// The state of one pool.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) name: String,
    pub(crate) account: AccountId,
    pub(crate) max_request: Class,
    pub(crate) settings: AtomicSettings,
    pub(crate) registry: Arc<Registry<Self>>,
    pub(crate) counters: Counters,
    /// Monotonic time until which no free page is kept, in ns. 0: no squeeze.
    squeeze_until: AtomicU64,
    depot: Mutex<Depot>,
    handles: Mutex<Vec<Weak<PoolHandle>>>,
}

impl Inner {
    pub(crate) fn new(
        registry: Arc<Registry<Self>>,
        name: String,
        account: AccountId,
        max_request: Class,
    ) -> Self {
        Self {
            name,
            account,
            max_request,
            settings: AtomicSettings::new(registry.defaults.get()),
            registry,
            counters: Counters::default(),
            squeeze_until: AtomicU64::new(0),
            depot: Mutex::new(Depot::new()),
            handles: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn handle(self: &Arc<Self>, with_magazine: bool) -> Arc<PoolHandle> {
        let handle = Arc::new(PoolHandle {
            pool: Arc::clone(self),
            magazine: with_magazine.then(Magazine::new),
            hits: AtomicU64::new(0),
        });
        if with_magazine {
            let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
            handles.retain(|handle| handle.strong_count() > 0);
            handles.push(Arc::downgrade(&handle));
        }
        handle
    }

    fn handles(&self) -> Vec<Arc<PoolHandle>> {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.iter().filter_map(Weak::upgrade).collect()
    }

    fn depot(&self) -> MutexGuard<'_, Depot> {
        self.depot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn budget(&self) -> &Budget {
        &self.registry.budget
    }

    /// Takes a block of at least `len` bytes.
    pub(crate) fn acquire(
        &self,
        handle: &PoolHandle,
        len: usize,
        wait_policy: WaitPolicy,
    ) -> Result<Block, AcquireError> {
        let class = Class::holding(len).filter(|&class| class <= self.max_request);
        let class = class.ok_or_else(|| self.too_large(len))?;
        let mut block = match self.take_free_block(handle, class) {
            Some(block) => block,
            None if self.try_charge(class) => self.grow(class)?,
            None => self.wait(class, wait_policy)?,
        };
        block.prepare(self.settings.zero());
        Ok(block)
    }

    fn take_free_block(&self, handle: &PoolHandle, class: Class) -> Option<Block> {
        if let Some(block) = handle.magazine.as_ref().and_then(|magazine| magazine.pop(class)) {
            count(&handle.hits, 1);
            return Some(block);
        }
        let block = self.depot().pop(class)?;
        count(&self.counters.depot_hits, 1);
        Some(block)
    }

    fn try_charge(&self, class: Class) -> bool {
        self.budget()
            .with(|ledger| ledger.try_charge(self.account, class.len() as u64))
    }

    // Adds pages that the budget already counters.
    fn grow(&self, class: Class) -> Result<Block, AcquireError> {
        let (block, mapped) = self
            .depot()
            .pop_cold(class)
            .map_err(|source| self.no_memory(class, source))?;
        count(&self.counters.grown, 1);
        count(&self.counters.mapped, usize::from(mapped));
        Ok(block)
    }

    fn no_memory(&self, class: Class, source: io::Error) -> AcquireError {
        self.budget()
            .with(|ledger| ledger.uncharge(self.account, class.len() as u64));
        let name = self.name.clone();
        AcquireError::NoMemory { name, source }
    }

    // The budget is used up. Free pages of this pool are released first, then those of the other pools; then
    // the request waits.
    fn wait(&self, class: Class, wait_policy: WaitPolicy) -> Result<Block, AcquireError> {
        let timeout = match wait_policy {
            WaitPolicy::NoWait => return self.grow_from_free(class),
            WaitPolicy::Timeout(timeout) => Some(timeout),
            WaitPolicy::Unbounded => None,
        };
        let deadline =
            timeout.and_then(|timeout| Instant::now().checked_add(Duration::from_nanos(timeout.0)));
        let ticket = self.budget().queue(self.account, class.len() as u64);
        // From here on, a thread that stores a block sees the waiter. Blocks stored earlier are released
        // here.
        let is_own = |pool: &Self| pool.account == self.account;
        for pool in self.registry.pools_from(is_own) {
            if self.budget().is_granted(ticket) {
                break;
            }
            pool.shrink(0);
        }
        count(&self.counters.waits, 1);
        match self.budget().wait(ticket, deadline) {
            Some(Grant::Bytes) => self.grow(class),
            Some(Grant::Block(block)) => {
                count(&self.counters.handed_over, 1);
                Ok(block)
            }
            None => Err(self.full(class, timeout)),
        }
    }

    fn grow_from_free(&self, class: Class) -> Result<Block, AcquireError> {
        let wanted = pages(class.len());
        let is_own = |pool: &Self| pool.account == self.account;
        for pool in self.registry.pools_from(is_own) {
            pool.shrink(pool.free_pages().saturating_sub(wanted));
            if self.try_charge(class) {
                return self.grow(class);
            }
        }
        Err(self.full(class, None))
    }

    fn too_large(&self, len: usize) -> AcquireError {
        AcquireError::TooLarge {
            name: self.name.clone(),
            requested: Bytes(len as u64),
            max_request: Bytes(self.max_request.len() as u64),
        }
    }

    fn full(&self, class: Class, waited: Option<Nanos>) -> AcquireError {
        count(&self.counters.refused, 1);
        let (used, budget) = self
            .budget()
            .with(|ledger| (Bytes(ledger.used()), Bytes(ledger.limit())));
        let (name, requested) = (self.name.clone(), Bytes(class.len() as u64));
        match waited {
            None => AcquireError::Full {
                name,
                requested,
                used,
                budget,
            },
            Some(waited) => AcquireError::TimedOut {
                name,
                requested,
                waited,
                used,
                budget,
            },
        }
    }

    /// Takes back a block from its user.
    pub(crate) fn put_back(&self, handle: &PoolHandle, block: Block) {
        if self.budget().has_waiters() {
            if let Some(block) = self.budget().hand_over(self.account, block) {
                self.release_pages(vec![block]);
            }
            return;
        }
        // During a squeeze, blocks are released at the end of the batch. The depot is cheaper to empty than a
        // magazine.
        let squeezed = self.squeeze_until.load(Ordering::Relaxed) != 0 && self.free_page_limit() == 0;
        let magazine = handle.magazine.as_ref().filter(|_| !squeezed);
        let left = match (magazine, class_of(&block)) {
            (Some(magazine), Some(class)) => magazine.push(class, block).err(),
            _ => Some(block),
        };
        self.store_free(left);
        if self.budget().has_waiters_after_put() {
            self.shrink(0);
        }
    }

    // Puts blocks with pages into the depot.
    fn store_free(&self, blocks: impl IntoIterator<Item = Block>) {
        let mut blocks = blocks.into_iter().peekable();
        if blocks.peek().is_some() {
            let mut depot = self.depot();
            for block in blocks {
                if let Some(class) = class_of(&block) {
                    depot.push(class, block);
                }
            }
        }
    }

    /// Number of free pages.
    pub(crate) fn free_pages(&self) -> usize {
        let magazine_pages = |handle: &Arc<PoolHandle>| handle.magazine.as_ref().map_or(0, Magazine::pages);
        // Two statements: dropping the last reference to a handle takes the depot's lock.
        let in_depot = self.depot().pages();
        in_depot + self.handles().iter().map(magazine_pages).sum::<usize>()
    }

    /// Number of free pages that the pool may keep now.
    pub(crate) fn free_page_limit(&self) -> usize {
        let until = self.squeeze_until.load(Ordering::Relaxed);
        if until != 0 {
            if clock::monotonic().0 < until {
                return 0;
            }
            // If this fails, a new report has set a later time, which then applies.
            let _ = self
                .squeeze_until
                .compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.settings.max_buffer_pages()
    }

    /// Releases free pages until at most `limit` are left. Returns the bytes released.
    pub(crate) fn shrink(&self, limit: usize) -> Bytes {
        let mut freed = Bytes::ZERO;
        loop {
            let excess = self.free_pages().saturating_sub(limit);
            if excess == 0 {
                return freed;
            }
            let mut batch = ReclaimBatch::with_target(excess.min(MAX_BATCH_PAGES));
            self.depot().steal(&mut batch);
            for handle in self.handles() {
                if let Some(magazine) = &handle.magazine {
                    magazine.steal(&mut batch);
                }
            }
            let released = self.release_pages(batch.blocks);
            if released == Bytes::ZERO {
                return freed;
            }
            freed += released;
        }
    }

    // No lock is held during the system calls.
    fn release_pages(&self, mut blocks: Vec<Block>) -> Bytes {
        match raw::release_pages(&mut blocks, self.settings.release_advice()) {
            Ok(calls) => count(&self.counters.return_calls, calls),
            Err(_) => count(&self.counters.return_errors, 1),
        }
        let (released_blocks, unreleased): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|block| block.is_released());
        self.store_free(unreleased);
        let bytes: usize = released_blocks.iter().map(|block| block.len()).sum();
        {
            let mut depot = self.depot();
            for block in released_blocks {
                if let Some(class) = class_of(&block) {
                    depot.push_cold(class, block);
                }
            }
        }
        count(&self.counters.returned_pages, pages(bytes));
        self.budget()
            .with(|ledger| ledger.uncharge(self.account, bytes as u64));
        Bytes(bytes as u64)
    }

    /// Releases all free pages, and keeps none for the squeeze duration from now on.
    pub(crate) fn squeeze(&self) -> Bytes {
        let duration = self.settings.squeeze();
        if duration == Nanos::ZERO {
            return Bytes::ZERO;
        }
        let until = clock::monotonic().saturating_add(duration);
        self.squeeze_until.fetch_max(until.0, Ordering::Relaxed);
        count(&self.counters.squeezes, 1);
        self.shrink(0)
    }

    pub(crate) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let handle_hits: u64 = self.handles().iter().map(|handle| read(&handle.hits)).sum();
        let counters = &self.counters;
        Stats {
            held_pages: pages_of(self.budget().with(|ledger| ledger.used_by(self.account))),
            free_pages: self.free_pages() as u64,
            magazine_hits: read(&counters.magazine_hits) + handle_hits,
            depot_hits: read(&counters.depot_hits),
            grown: read(&counters.grown),
            mapped: read(&counters.mapped),
            handed_over: read(&counters.handed_over),
            waits: read(&counters.waits),
            refused: read(&counters.refused),
            squeezes: read(&counters.squeezes),
            returned_pages: read(&counters.returned_pages),
            return_calls: read(&counters.return_calls),
            return_errors: read(&counters.return_errors),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Release the memory first, then its charge, then the name.
        *self.depot() = Depot::new();
        self.budget().with(|ledger| ledger.close(self.account));
        self.registry.remove(&self.name);
    }
}

fn class_of(block: &Block) -> Option<Class> {
    Class::holding(block.len())
}

fn pages_of(bytes: u64) -> u64 {
    bytes / rustix::param::page_size() as u64
}
