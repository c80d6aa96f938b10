//! The faces of a pool: [`Pools`], a [`Pool`] of it, a thread's [`Cache`] of that, and the [`Buffer`] it lends.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use thermo_units::{Bytes, Nanos};

use crate::bus::{Bus, Registration};
use crate::class::{Class, LARGEST};
use crate::error::{AcquireError, OpenError};
use crate::inner::{Home, Inner, WaitPolicy};
use crate::raw::Block;
use crate::registry::House;
use crate::settings::{Knobs, Settings};
use crate::stats::{self, Stats};

/// How much of the budget is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The budget.
    pub limit: Bytes,
    /// Lent or free, in all pools.
    pub used: Bytes,
    /// The most that ever was.
    pub peak: Bytes,
    /// Set aside for the largest request of each pool, used or not.
    pub reserved: Bytes,
}

/// All pools of a process (or of a part of it), in one byte budget. Clones are the same pools.
#[derive(Debug, Clone)]
pub struct Pools(Arc<House>);

impl Pools {
    /// No pools yet. What all together hold, lent or free, will never exceed `budget`.
    #[must_use]
    pub fn new(budget: Bytes, settings: Settings) -> Self {
        Self(Arc::new(House::new(budget.0, Knobs::new(settings))))
    }

    /// Opens an empty pool for one user (a device, an export) whose largest request is `largest`. So much of the
    /// budget is reserved for it, rounded up to a buffer: it can always go on, whatever the others do, provided that a
    /// request acquires what it needs at once and releases it when it is done.
    ///
    /// # Errors
    /// When the reserves would exceed the budget, the name is taken, or `largest` is above [`LARGEST`].
    pub fn open(&self, name: &str, largest: Bytes) -> Result<Pool, OpenError> {
        let class = usize::try_from(largest.0).ok().and_then(Class::holding);
        let class = class.ok_or_else(|| OpenError::TooLarge {
            name: name.to_owned(),
            asked: largest,
            most: LARGEST,
        })?;
        let reserve = class.len() as u64;
        let opened = self.0.budget.with(|ledger| {
            ledger.open(reserve).ok_or_else(|| OpenError::NoReserve {
                name: name.to_owned(),
                asked: Bytes(reserve),
                reserved: Bytes(ledger.reserved()),
                budget: Bytes(ledger.limit()),
            })
        });
        let account = opened?;
        let make = || Arc::new(Inner::new(Arc::clone(&self.0), name.to_owned(), account, class));
        match self.0.join(name, make) {
            Some(inner) => Ok(Pool(inner.home(false))),
            None => {
                self.0.budget.with(|ledger| ledger.close(account));
                Err(OpenError::NameTaken(name.to_owned()))
            }
        }
    }

    /// Settings of all pools, and of those opened later.
    pub fn configure(&self, settings: Settings) {
        self.0.defaults.set(settings);
        self.0.pools().iter().for_each(|pool| pool.knobs.set(settings));
    }

    /// The settings of pools opened next.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.0.defaults.get()
    }

    /// Changes the budget. When more is in use, nothing is lent that needs new pages until enough came back.
    ///
    /// # Errors
    /// When the reserves of the open pools exceed it.
    pub fn set_budget(&self, budget: Bytes) -> Result<(), OpenError> {
        let refused = self
            .0
            .budget
            .with(|ledger| (!ledger.set_limit(budget.0)).then(|| ledger.reserved()));
        match refused {
            None => Ok(()),
            Some(reserved) => Err(OpenError::BelowReserves {
                asked: budget,
                reserved: Bytes(reserved),
            }),
        }
    }

    /// How much of the budget is used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.0.budget.with(|ledger| Usage {
            limit: Bytes(ledger.limit()),
            used: Bytes(ledger.used()),
            peak: Bytes(ledger.peak()),
            reserved: Bytes(ledger.reserved()),
        })
    }

    /// Memory is short: gives every free page back and keeps none for `buffer_squeeze_duration_ms`, counted anew
    /// by each report. Tells how much went back.
    pub fn report_pressure(&self) -> Bytes {
        self.0.pools().iter().map(|pool| pool.squeeze()).sum()
    }

    /// Shrinks every pool to what it may keep. A [`crate::Keeper`] does it every 100 ms.
    pub fn shrink(&self) -> Bytes {
        self.0.pools().iter().map(|pool| pool.shrink(pool.limit())).sum()
    }

    /// Has pressure that is reported on `bus` squeeze these pools, until the registration is dropped.
    #[must_use = "dropping the registration ends it"]
    pub fn join(&self, bus: &Bus, priority: i32) -> Registration {
        let (pools, house) = (self.clone(), self.clone());
        let estimate = move || house.0.pools().iter().map(|pool| free_bytes(pool)).sum();
        bus.register("pools", priority, estimate, move |_| pools.report_pressure())
    }

    /// The numbers of every pool, by name.
    #[must_use]
    pub fn stats(&self) -> Vec<(String, Stats)> {
        let pools = self.0.pools();
        pools
            .iter()
            .map(|pool| (pool.name.clone(), pool.stats()))
            .collect()
    }

    /// The same in the text form of Prometheus.
    #[must_use]
    pub fn prometheus(&self) -> String {
        stats::prometheus(&self.stats())
    }
}

fn free_bytes(pool: &Inner) -> Bytes {
    Bytes((pool.free_pages() * rustix::param::page_size()) as u64)
}

macro_rules! lender {
    () => {
        /// A buffer of `len` bytes; waits while the budget is used up, for as long as it takes. What it holds is what
        /// its last user in this pool left, or zeros ([`Settings::zero`]).
        ///
        /// # Errors
        /// When `len` is above what the pool was opened for, or the kernel maps no memory.
        pub fn acquire(&self, len: usize) -> Result<Buffer, AcquireError> {
            Buffer::of(&self.0, len, WaitPolicy::Endless)
        }

        /// As [`Self::acquire`], and waits at most for `timeout`.
        ///
        /// # Errors
        /// As there, and when nothing came free in time.
        pub fn acquire_within(&self, len: usize, timeout: Nanos) -> Result<Buffer, AcquireError> {
            Buffer::of(&self.0, len, WaitPolicy::For(timeout))
        }

        /// As [`Self::acquire`], and does not wait.
        ///
        /// # Errors
        /// As there, and when the budget is used up or others wait for it.
        pub fn try_acquire(&self, len: usize) -> Result<Buffer, AcquireError> {
            Buffer::of(&self.0, len, WaitPolicy::None)
        }

        /// A batch of requests ends: shrinks the pool to what it may keep, if it holds more.
        pub fn end_batch(&self) {
            let pool = &self.0.pool;
            pool.shrink(pool.limit());
        }
    };
}

/// The buffers of one user. Clones are the same pool; it closes when they, its caches and its buffers are gone.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Home>);

impl Pool {
    lender!();

    /// A cache for a thread that does requests: takes and puts without a lock.
    #[must_use]
    pub fn cache(&self) -> Cache {
        Cache(self.0.pool.home(true), PhantomData)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.pool.name
    }

    /// The largest buffer it lends.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        Bytes(self.0.pool.largest.len() as u64)
    }

    /// Settings of this pool alone.
    pub fn configure(&self, settings: Settings) {
        self.0.pool.knobs.set(settings);
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.0.pool.knobs.get()
    }

    /// As [`Pools::report_pressure`], for this pool alone.
    pub fn report_pressure(&self) -> Bytes {
        self.0.pool.squeeze()
    }

    /// Its numbers.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.pool.stats()
    }
}

/// One thread's way to a [`Pool`]: buffers taken here return here, the hottest first. It may move to another thread,
/// not be shared by two; its buffers may be dropped by any thread.
#[derive(Debug)]
pub struct Cache(Arc<Home>, PhantomData<std::cell::Cell<()>>);

impl Cache {
    lender!();
}

/// Bytes lent by a pool; they go back when this is dropped.
pub struct Buffer {
    block: Option<Block>,
    home: Arc<Home>,
    len: usize,
}

impl Buffer {
    fn of(home: &Arc<Home>, len: usize, patience: WaitPolicy) -> Result<Self, AcquireError> {
        Ok(Self {
            block: Some(home.pool.acquire(home, len, patience)?),
            home: Arc::clone(home),
            len,
        })
    }

    /// Bytes it takes from the budget: its length rounded up to a size class.
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
    /// Without the bytes: they are somebody's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = &self.home.pool.name;
        f.debug_struct("Buffer")
            .field("pool", pool)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.home.pool.release(&self.home, block);
        }
    }
}
