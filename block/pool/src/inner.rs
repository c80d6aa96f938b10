//! One pool: how blocks are taken, put back and given up. [`crate::Pool`] and [`crate::Cache`] are its faces.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use thermo_kernel::clock;
use thermo_units::{Bytes, Nanos};

use crate::budget::{Budget, Grant};
use crate::class::{Class, pages};
use crate::depot::Depot;
use crate::error::AcquireError;
use crate::ledger::AccountId;
use crate::magazine::Shelf;
use crate::raw::{self, Block};
use crate::reclaim_batch::Haul;
use crate::registry::House;
use crate::settings::Knobs;
use crate::stats::{Counts, Stats, count};

/// Pages that go back to the kernel in one go: enough that the calls do not count, few enough that a thread which
/// shrinks a pool at the end of its batch is soon back at its requests.
const BATCH_PAGES: usize = 1024;

/// How long a request may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitPolicy {
    None,
    For(Nanos),
    Endless,
}

/// Where a buffer returns to: a thread's shelf, or (without one) the depot.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) pool: Arc<Inner>,
    shelf: Option<Shelf>,
    /// Counted here, not in the pool: a counter that threads share would cost more than the hit.
    hits: AtomicU64,
}

impl Drop for Home {
    fn drop(&mut self) {
        count(
            &self.pool.counts.shelf_hits,
            usize::try_from(*self.hits.get_mut()).unwrap_or(usize::MAX),
        );
        if let Some(shelf) = &self.shelf {
            let mut haul = Haul::of(usize::MAX);
            shelf.steal(&mut haul);
            self.pool.keep(haul.blocks);
            // Whoever began to wait meanwhile could not look here any more.
            if self.pool.budget().is_waited_for_after_putting() {
                self.pool.shrink(0);
            }
        }
    }
}

/// One pool.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) name: String,
    pub(crate) account: AccountId,
    pub(crate) largest: Class,
    pub(crate) knobs: Knobs,
    pub(crate) house: Arc<House>,
    pub(crate) counts: Counts,
    /// Until this moment no free page is kept; 0: no squeeze.
    squeeze_until: AtomicU64,
    depot: Mutex<Depot>,
    homes: Mutex<Vec<Weak<Home>>>,
}

impl Inner {
    pub(crate) fn new(house: Arc<House>, name: String, account: AccountId, largest: Class) -> Self {
        Self {
            name,
            account,
            largest,
            knobs: Knobs::new(house.defaults.get()),
            house,
            counts: Counts::default(),
            squeeze_until: AtomicU64::new(0),
            depot: Mutex::new(Depot::new()),
            homes: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn home(self: &Arc<Self>, with_shelf: bool) -> Arc<Home> {
        let home = Arc::new(Home {
            pool: Arc::clone(self),
            shelf: with_shelf.then(Shelf::new),
            hits: AtomicU64::new(0),
        });
        if with_shelf {
            let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
            homes.retain(|home| home.strong_count() > 0);
            homes.push(Arc::downgrade(&home));
        }
        home
    }

    fn homes(&self) -> Vec<Arc<Home>> {
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        homes.iter().filter_map(Weak::upgrade).collect()
    }

    fn depot(&self) -> MutexGuard<'_, Depot> {
        self.depot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn budget(&self) -> &Budget {
        &self.house.budget
    }

    /// Takes a block that holds at least `len` bytes.
    pub(crate) fn acquire(
        &self,
        home: &Home,
        len: usize,
        patience: WaitPolicy,
    ) -> Result<Block, AcquireError> {
        let class = Class::holding(len).filter(|&class| class <= self.largest);
        let class = class.ok_or_else(|| self.too_large(len))?;
        let mut block = match self.free_block(home, class) {
            Some(block) => block,
            None if self.has_turn(class) => self.grow(class)?,
            None => self.wait(class, patience)?,
        };
        block.ready(self.knobs.zero());
        Ok(block)
    }

    fn free_block(&self, home: &Home, class: Class) -> Option<Block> {
        if let Some(block) = home.shelf.as_ref().and_then(|shelf| shelf.pop(class)) {
            count(&home.hits, 1);
            return Some(block);
        }
        let block = self.depot().pop(class)?;
        count(&self.counts.depot_hits, 1);
        Some(block)
    }

    fn has_turn(&self, class: Class) -> bool {
        self.budget()
            .with(|ledger| ledger.try_charge(self.account, class.len() as u64))
    }

    // Pages that the budget already counts.
    fn grow(&self, class: Class) -> Result<Block, AcquireError> {
        let (block, mapped) = self
            .depot()
            .cold(class)
            .map_err(|source| self.no_memory(class, source))?;
        count(&self.counts.grown, 1);
        count(&self.counts.mapped, usize::from(mapped));
        Ok(block)
    }

    fn no_memory(&self, class: Class, source: io::Error) -> AcquireError {
        self.budget()
            .with(|ledger| ledger.uncharge(self.account, class.len() as u64));
        let name = self.name.clone();
        AcquireError::NoMemory { name, source }
    }

    // The budget is used up: free pages go first, of this pool, then of the others; then the queue.
    fn wait(&self, class: Class, patience: WaitPolicy) -> Result<Block, AcquireError> {
        let timeout = match patience {
            WaitPolicy::None => return self.grow_from_free(class),
            WaitPolicy::For(timeout) => Some(timeout),
            WaitPolicy::Endless => None,
        };
        let deadline =
            timeout.and_then(|timeout| Instant::now().checked_add(Duration::from_nanos(timeout.0)));
        let ticket = self.budget().queue(self.account, class.len() as u64);
        // Now everybody who puts a block back sees that somebody waits; what was put before is taken here.
        for pool in self.house.pools_after(self) {
            if self.budget().is_granted(ticket) {
                break;
            }
            pool.shrink(0);
        }
        count(&self.counts.waits, 1);
        match self.budget().sit(ticket, deadline) {
            Some(Grant::Bytes) => self.grow(class),
            Some(Grant::Block(block)) => {
                count(&self.counts.handed_over, 1);
                Ok(block)
            }
            None => Err(self.full(class, timeout)),
        }
    }

    fn grow_from_free(&self, class: Class) -> Result<Block, AcquireError> {
        let wanted = pages(class.len());
        for pool in self.house.pools_after(self) {
            pool.shrink(pool.free_pages().saturating_sub(wanted));
            if self.has_turn(class) {
                return self.grow(class);
            }
        }
        Err(self.full(class, None))
    }

    fn too_large(&self, len: usize) -> AcquireError {
        AcquireError::TooLarge {
            name: self.name.clone(),
            asked: Bytes(len as u64),
            largest: Bytes(self.largest.len() as u64),
        }
    }

    fn full(&self, class: Class, waited: Option<Nanos>) -> AcquireError {
        count(&self.counts.refused, 1);
        let (used, budget) = self
            .budget()
            .with(|ledger| (Bytes(ledger.used()), Bytes(ledger.limit())));
        let (name, asked) = (self.name.clone(), Bytes(class.len() as u64));
        match waited {
            None => AcquireError::Full {
                name,
                asked,
                used,
                budget,
            },
            Some(waited) => AcquireError::TimedOut {
                name,
                asked,
                waited,
                used,
                budget,
            },
        }
    }

    /// Takes a block back.
    pub(crate) fn release(&self, home: &Home, block: Block) {
        if self.budget().is_waited_for() {
            if let Some(block) = self.budget().hand_over(self.account, block) {
                self.give_back(vec![block]);
            }
            return;
        }
        // A squeezed pool keeps nothing beyond the batch, so a place on the shelf would only have to be searched.
        let squeezed = self.squeeze_until.load(Ordering::Relaxed) != 0 && self.limit() == 0;
        let shelf = home.shelf.as_ref().filter(|_| !squeezed);
        let left = match (shelf, class_of(&block)) {
            (Some(shelf), Some(class)) => shelf.push(class, block).err(),
            _ => Some(block),
        };
        self.keep(left);
        if self.budget().is_waited_for_after_putting() {
            self.shrink(0);
        }
    }

    // Puts blocks with pages into the depot.
    fn keep(&self, blocks: impl IntoIterator<Item = Block>) {
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

    /// Pages kept for the next requests.
    pub(crate) fn free_pages(&self) -> usize {
        let on_shelves = |home: &Arc<Home>| home.shelf.as_ref().map_or(0, Shelf::pages);
        // Not in one expression: the last hold of a home may be dropped here, and that takes the depot's lock.
        let in_depot = self.depot().pages();
        in_depot + self.homes().iter().map(on_shelves).sum::<usize>()
    }

    /// Free pages it may keep now.
    pub(crate) fn limit(&self) -> usize {
        let until = self.squeeze_until.load(Ordering::Relaxed);
        if until != 0 {
            if clock::monotonic().0 < until {
                return 0;
            }
            // Lost to a new report: then that one counts.
            let _ = self
                .squeeze_until
                .compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.knobs.max_buffer_pages()
    }

    /// Gives free pages back until at most `limit` are left; tells how much.
    pub(crate) fn shrink(&self, limit: usize) -> Bytes {
        let mut freed = Bytes::ZERO;
        loop {
            let excess = self.free_pages().saturating_sub(limit);
            if excess == 0 {
                return freed;
            }
            let mut haul = Haul::of(excess.min(BATCH_PAGES));
            self.depot().steal(&mut haul);
            for home in self.homes() {
                if let Some(shelf) = &home.shelf {
                    shelf.steal(&mut haul);
                }
            }
            let batch = self.give_back(haul.blocks);
            if batch == Bytes::ZERO {
                return freed;
            }
            freed += batch;
        }
    }

    // No lock is held while the kernel works.
    fn give_back(&self, mut blocks: Vec<Block>) -> Bytes {
        match raw::give_back(&mut blocks, self.knobs.give_back()) {
            Ok(calls) => count(&self.counts.return_calls, calls),
            Err(_) => count(&self.counts.return_errors, 1),
        }
        let (gone, kept): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|block| block.is_given_back());
        self.keep(kept);
        let bytes: usize = gone.iter().map(|block| block.len()).sum();
        {
            let mut depot = self.depot();
            for block in gone {
                if let Some(class) = class_of(&block) {
                    depot.keep_cold(class, block);
                }
            }
        }
        count(&self.counts.returned_pages, pages(bytes));
        self.budget()
            .with(|ledger| ledger.uncharge(self.account, bytes as u64));
        Bytes(bytes as u64)
    }

    /// Keeps nothing free for the time that is set, from now on.
    pub(crate) fn squeeze(&self) -> Bytes {
        let duration = self.knobs.squeeze();
        if duration == Nanos::ZERO {
            return Bytes::ZERO;
        }
        let until = clock::monotonic().saturating_add(duration);
        self.squeeze_until.fetch_max(until.0, Ordering::Relaxed);
        count(&self.counts.squeezes, 1);
        self.shrink(0)
    }

    pub(crate) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of_homes: u64 = self.homes().iter().map(|home| read(&home.hits)).sum();
        let counts = &self.counts;
        Stats {
            held_pages: pages_of(self.budget().with(|ledger| ledger.used_by(self.account))),
            free_pages: self.free_pages() as u64,
            shelf_hits: read(&counts.shelf_hits) + of_homes,
            depot_hits: read(&counts.depot_hits),
            grown: read(&counts.grown),
            mapped: read(&counts.mapped),
            handed_over: read(&counts.handed_over),
            waits: read(&counts.waits),
            refused: read(&counts.refused),
            squeezes: read(&counts.squeezes),
            returned_pages: read(&counts.returned_pages),
            return_calls: read(&counts.return_calls),
            return_errors: read(&counts.return_errors),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // First the memory, then the right to it, then the name.
        *self.depot() = Depot::new();
        self.budget().with(|ledger| ledger.close(self.account));
        self.house.forget(&self.name);
    }
}

fn class_of(block: &Block) -> Option<Class> {
    Class::holding(block.len())
}

fn pages_of(bytes: u64) -> u64 {
    bytes / rustix::param::page_size() as u64
}
