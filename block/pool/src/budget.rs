//! The byte budget: a [`Ledger`] behind a lock, and a condition variable for each waiting request.
//!
//! The lock is taken when a block gains or loses pages. Reusing a free block takes no lock here.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use thermo_units::Nanos;

use crate::ledger::{AccountId, Ledger, Ticket};
use crate::raw::Block;
use crate::sync::{AtomicUsize, Ordering, fence};

/// How long a request waits for the budget.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitPolicy {
    NoWait,
    Timeout(Nanos),
    Unbounded,
}

/// The result of a successful wait.
#[derive(Debug)]
pub(crate) enum Grant {
    /// The requested bytes are charged; the caller allocates the pages.
    Bytes,
    /// A block that was just put back, already charged.
    Block(Block),
}

#[derive(Debug)]
struct Waiter {
    condvar: Arc<Condvar>,
    grant: Option<Grant>,
}

#[derive(Debug)]
struct BudgetState {
    ledger: Ledger,
    waiters: BTreeMap<Ticket, Waiter>,
}

impl BudgetState {
    fn grant(&mut self) {
        for ticket in self.ledger.grant() {
            self.deliver(ticket, Grant::Bytes);
        }
    }

    fn deliver(&mut self, ticket: Ticket, grant: Grant) {
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            waiter.grant = Some(grant);
            waiter.condvar.notify_one();
        }
    }
}

/// The budget of all pools.
#[derive(Debug)]
pub(crate) struct Budget {
    state: Mutex<BudgetState>,
    waiter_count: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            state: Mutex::new(BudgetState {
                ledger: Ledger::new(limit),
                waiters: BTreeMap::new(),
            }),
            waiter_count: AtomicUsize::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Reads or changes the ledger, then wakes every request that fits afterwards.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state.ledger);
        state.grant();
        result
    }

    /// Whether a request waits. The answer may be stale for other threads.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiter_count.load(Ordering::Relaxed) > 0
    }

    /// Like [`Self::has_waiters`], for a thread that has just stored a free block. The fences guarantee that
    /// this thread sees the waiter, or the waiter sees the block.
    pub(crate) fn has_waiters_after_put(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_waiters()
    }

    /// Joins the queue. Afterwards, the caller sees every free block stored before.
    pub(crate) fn queue(&self, account: AccountId, bytes: u64) -> Ticket {
        self.waiter_count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut state = self.state();
        let ticket = state.ledger.wait(account, bytes);
        state.waiters.insert(
            ticket,
            Waiter {
                condvar: Arc::new(Condvar::new()),
                grant: None,
            },
        );
        state.grant();
        ticket
    }

    /// Whether the request has its grant.
    pub(crate) fn is_granted(&self, ticket: Ticket) -> bool {
        self.state()
            .waiters
            .get(&ticket)
            .is_some_and(|waiter| waiter.grant.is_some())
    }

    /// Waits for the grant, at the latest until `deadline`. Leaves the queue in both cases.
    pub(crate) fn wait(&self, ticket: Ticket, deadline: Option<Instant>) -> Option<Grant> {
        let mut state = self.state();
        let condvar = state
            .waiters
            .get(&ticket)
            .map(|waiter| Arc::clone(&waiter.condvar))?;
        loop {
            let granted = state
                .waiters
                .get(&ticket)
                .is_none_or(|waiter| waiter.grant.is_some());
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if granted || remaining.is_some_and(|remaining| remaining.is_zero()) {
                break;
            }
            state = match remaining {
                Some(remaining) => condvar
                    .wait_timeout(state, remaining)
                    .map_or_else(|poisoned| poisoned.into_inner().0, |woken| woken.0),
                None => condvar
                    .wait(state)
                    .unwrap_or_else(std::sync::PoisonError::into_inner),
            };
        }
        let grant = state.waiters.remove(&ticket).and_then(|waiter| waiter.grant);
        if grant.is_none() {
            state.ledger.cancel(ticket);
            state.grant();
        }
        self.waiter_count.fetch_sub(1, Ordering::Relaxed);
        grant
    }

    /// Passes a block that was put back to the first waiting request of the same account if the size matches.
    /// Returns the block otherwise.
    pub(crate) fn hand_over(&self, account: AccountId, block: Block) -> Option<Block> {
        let mut state = self.state();
        let Some(ticket) = state.ledger.hand_over(account, block.len() as u64) else {
            return Some(block);
        };
        state.deliver(ticket, Grant::Block(block));
        None
    }
}
