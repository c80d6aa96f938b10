//! The public handles: [`Pools`], a [`Pool`], a thread's [`Cache`] of a pool, and the [`Buffer`] that a pool
//! lends.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use thermo_units::{Bytes, Nanos};

use crate::budget::WaitPolicy;
use crate::bus::{ReclaimBus, Registration};
use crate::class::{Class, MAX_BUFFER_SIZE};
use crate::error::{AcquireError, OpenError};
use crate::inner::{Inner, PoolHandle};
use crate::raw::Block;
use crate::registry::Registry;
use crate::settings::{AtomicSettings, Settings};
use crate::stats::{self, Stats};

/// Use of the byte budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetUsage {
    /// The budget.
    pub limit: Bytes,
    /// Bytes that all pools hold, lent or free.
    pub used: Bytes,
    /// Maximum of `used` so far.
    pub peak: Bytes,
    /// Bytes reserved for the largest request of each pool, used or not.
    pub reserved: Bytes,
}

/// All pools of a process or of a part of it, with one byte budget. Clones refer to the same pools.
#[derive(Debug, Clone)]
pub struct Pools(Arc<Registry<Inner>>);

impl Pools {
    /// Creates an empty set of pools. Lent and free buffers together never exceed `budget`.
    #[must_use]
    pub fn new(budget: Bytes, settings: Settings) -> Self {
        Self(Arc::new(Registry::new(budget.0, AtomicSettings::new(settings))))
    }

    /// Opens an empty pool for one user (a device, an export). The budget reserves `max_request` for the
    /// pool, rounded up to a buffer size. So the user can always make progress, provided that each request
    /// acquires all its buffers at once and releases them when done.
    ///
    /// # Errors
    /// The reserves would exceed the budget, the name is taken, or `max_request` exceeds [`MAX_BUFFER_SIZE`].
    pub fn open(&self, name: &str, max_request: Bytes) -> Result<Pool, OpenError> {
        let class = usize::try_from(max_request.0).ok().and_then(Class::holding);
        let class = class.ok_or_else(|| OpenError::TooLarge {
            name: name.to_owned(),
            requested: max_request,
            max: MAX_BUFFER_SIZE,
        })?;
        let reserve = class.len() as u64;
        let opened = self.0.budget.with(|ledger| {
            ledger.open(reserve).ok_or_else(|| OpenError::NoReserve {
                name: name.to_owned(),
                requested: Bytes(reserve),
                reserved: Bytes(ledger.reserved()),
                budget: Bytes(ledger.limit()),
            })
        });
        let account = opened?;
        let make = || Arc::new(Inner::new(Arc::clone(&self.0), name.to_owned(), account, class));
        match self.0.add(name, make) {
            Some(inner) => Ok(Pool(inner.handle(false))),
            None => {
                self.0.budget.with(|ledger| ledger.close(account));
                Err(OpenError::NameTaken(name.to_owned()))
            }
        }
    }

    /// Changes the settings of all pools, and of pools opened later.
    pub fn configure(&self, settings: Settings) {
        self.0.defaults.set(settings);
        self.0.pools().iter().for_each(|pool| pool.settings.set(settings));
    }

    /// The settings for new pools.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.0.defaults.get()
    }

    /// Changes the budget. If more is in use, no new pages are lent until enough buffers are put back.
    ///
    /// # Errors
    /// The reserves of the open pools exceed the new budget.
    pub fn set_budget(&self, budget: Bytes) -> Result<(), OpenError> {
        let refused = self
            .0
            .budget
            .with(|ledger| (!ledger.set_limit(budget.0)).then(|| ledger.reserved()));
        match refused {
            None => Ok(()),
            Some(reserved) => Err(OpenError::BelowReserves {
                requested: budget,
                reserved: Bytes(reserved),
            }),
        }
    }

    /// The current use of the budget.
    #[must_use]
    pub fn usage(&self) -> BudgetUsage {
        self.0.budget.with(|ledger| BudgetUsage {
            limit: Bytes(ledger.limit()),
            used: Bytes(ledger.used()),
            peak: Bytes(ledger.peak()),
            reserved: Bytes(ledger.reserved()),
        })
    }

    /// Reports memory pressure: releases every free page, and keeps none for `buffer_squeeze_duration_ms`.
    /// Each report restarts that time. Returns the bytes released.
    pub fn report_pressure(&self) -> Bytes {
        self.0.pools().iter().map(|pool| pool.squeeze()).sum()
    }

    /// Shrinks every pool to the number of free pages it may keep. A [`crate::PressureMonitor`] does so every
    /// 100 ms.
    pub fn shrink(&self) -> Bytes {
        self.0
            .pools()
            .iter()
            .map(|pool| pool.shrink(pool.free_page_limit()))
            .sum()
    }

    /// Registers these pools on `bus`: reported pressure squeezes them until the registration is dropped.
    #[must_use = "dropping the registration ends it"]
    pub fn register_on(&self, bus: &ReclaimBus, priority: i32) -> Registration {
        let (pools, registry) = (self.clone(), self.clone());
        let estimate = move || registry.0.pools().iter().map(|pool| free_bytes(pool)).sum();
        bus.register("pools", priority, estimate, move |_| pools.report_pressure())
    }

    /// The statistics of every pool, by name.
    #[must_use]
    pub fn stats(&self) -> Vec<(String, Stats)> {
        let pools = self.0.pools();
        pools
            .iter()
            .map(|pool| (pool.name.clone(), pool.stats()))
            .collect()
    }

    /// The statistics of every pool in the Prometheus text format.
    #[must_use]
    pub fn prometheus(&self) -> String {
        stats::prometheus(&self.stats())
    }
}

fn free_bytes(pool: &Inner) -> Bytes {
    Bytes((pool.free_pages() * rustix::param::page_size()) as u64)
}

macro_rules! acquire_methods {
    () => {
        /// Acquires a buffer of `len` bytes. Waits without a limit while the budget is used up. The buffer
        /// holds the bytes of its last user in this pool, or zeros ([`Settings::zero`]).
        ///
        /// # Errors
        /// `len` exceeds the largest request of the pool, or the kernel cannot map memory.
        pub fn acquire(&self, len: usize) -> Result<Buffer, AcquireError> {
            Buffer::acquire(&self.0, len, WaitPolicy::Unbounded)
        }

        /// Like [`Self::acquire`], but waits at most `timeout`.
        ///
        /// # Errors
        /// Those of [`Self::acquire`], and if no memory became free in time.
        pub fn acquire_within(&self, len: usize, timeout: Nanos) -> Result<Buffer, AcquireError> {
            Buffer::acquire(&self.0, len, WaitPolicy::Timeout(timeout))
        }

        /// Like [`Self::acquire`], but does not wait.
        ///
        /// # Errors
        /// Those of [`Self::acquire`], and if the budget is used up or other requests wait.
        pub fn try_acquire(&self, len: usize) -> Result<Buffer, AcquireError> {
            Buffer::acquire(&self.0, len, WaitPolicy::NoWait)
        }

        /// Ends a batch of requests: shrinks the pool to the number of free pages it may keep.
        pub fn end_batch(&self) {
            let pool = &self.0.pool;
            pool.shrink(pool.free_page_limit());
        }
    };
}

/// The buffers of one user. Clones refer to the same pool. The pool closes when all its handles, caches and
/// buffers are dropped.
#[derive(Debug, Clone)]
pub struct Pool(Arc<PoolHandle>);

impl Pool {
    acquire_methods!();

    /// Creates a cache for a thread that processes requests. Acquiring and dropping a warm buffer takes no
    /// lock.
    #[must_use]
    pub fn cache(&self) -> Cache {
        Cache(self.0.pool.handle(true), PhantomData)
    }

    /// The name of the pool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.pool.name
    }

    /// The largest buffer that the pool lends.
    #[must_use]
    pub fn max_request(&self) -> Bytes {
        Bytes(self.0.pool.max_request.len() as u64)
    }

    /// Changes the settings of this pool only.
    pub fn configure(&self, settings: Settings) {
        self.0.pool.settings.set(settings);
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.0.pool.settings.get()
    }

    /// Like [`Pools::report_pressure`], for this pool only.
    pub fn report_pressure(&self) -> Bytes {
        self.0.pool.squeeze()
    }

    /// The statistics of the pool.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.pool.stats()
    }
}

/// A per-thread cache of a [`Pool`]. Buffers acquired here return here and are reused last in, first out. A
/// cache may move to another thread but not be shared. Any thread may drop its buffers.
#[derive(Debug)]
pub struct Cache(Arc<PoolHandle>, PhantomData<std::cell::Cell<()>>);

impl Cache {
    acquire_methods!();
}

/// A buffer lent by a pool. Dropping it puts it back.
pub struct Buffer {
    block: Option<Block>,
    handle: Arc<PoolHandle>,
    len: usize,
}

impl Buffer {
    fn acquire(handle: &Arc<PoolHandle>, len: usize, wait_policy: WaitPolicy) -> Result<Self, AcquireError> {
        Ok(Self {
            block: Some(handle.pool.acquire(handle, len, wait_policy)?),
            handle: Arc::clone(handle),
            len,
        })
    }

    /// Bytes charged to the budget: the length rounded up to a size class.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.len())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block
            .as_ref()
            .map_or(&[], |block| &block.bytes()[..self.len])
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.block
            .as_mut()
            .map_or(&mut [], |block| &mut block.bytes_mut()[..len])
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    /// Omits the bytes, which are user data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = &self.handle.pool.name;
        f.debug_struct("Buffer")
            .field("pool", pool)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.handle.pool.put_back(&self.handle, block);
        }
    }
}
