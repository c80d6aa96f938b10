//! The byte budget: the [`Ledger`] behind a lock, and a chair for everybody who waits.
//!
//! The lock is taken when a block gets or loses its pages, never when a free block is taken again.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use crate::ledger::{AccountId, Ledger, Ticket};
use crate::raw::Block;
use crate::sync::{AtomicUsize, Ordering, fence};

/// What a request that waited got.
#[derive(Debug)]
pub(crate) enum Grant {
    /// The right to `bytes` more.
    Bytes,
    /// A block that was just released, its bytes paid for.
    Block(Block),
}

#[derive(Debug)]
struct Waiter {
    bell: Arc<Condvar>,
    grant: Option<Grant>,
}

#[derive(Debug)]
struct BudgetState {
    ledger: Ledger,
    chairs: BTreeMap<Ticket, Waiter>,
}

impl BudgetState {
    fn grant(&mut self) {
        for ticket in self.ledger.grant() {
            self.seat(ticket, Grant::Bytes);
        }
    }

    fn seat(&mut self, ticket: Ticket, grant: Grant) {
        if let Some(chair) = self.chairs.get_mut(&ticket) {
            chair.grant = Some(grant);
            chair.bell.notify_one();
        }
    }
}

/// The budget of all pools.
#[derive(Debug)]
pub(crate) struct Budget {
    desk: Mutex<BudgetState>,
    waiters: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            desk: Mutex::new(BudgetState {
                ledger: Ledger::new(limit),
                chairs: BTreeMap::new(),
            }),
            waiters: AtomicUsize::new(0),
        }
    }

    fn desk(&self) -> MutexGuard<'_, BudgetState> {
        self.desk
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Looks at the books, or changes them; serves whom that lets pass.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut desk = self.desk();
        let answer = change(&mut desk.ledger);
        desk.grant();
        answer
    }

    /// True when somebody waits, as far as this thread can see.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    /// As [`Self::is_waited_for`], for a thread that has just put a block where one who waits would look: either it
    /// sees the waiter here, or the waiter sees the block.
    pub(crate) fn is_waited_for_after_putting(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_waited_for()
    }

    /// Joins the queue. Free blocks put before this are visible to the caller afterwards.
    pub(crate) fn queue(&self, account: AccountId, bytes: u64) -> Ticket {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut desk = self.desk();
        let ticket = desk.ledger.wait(account, bytes);
        desk.chairs.insert(
            ticket,
            Waiter {
                bell: Arc::new(Condvar::new()),
                grant: None,
            },
        );
        desk.grant();
        ticket
    }

    /// True once the request has its grant.
    pub(crate) fn is_granted(&self, ticket: Ticket) -> bool {
        self.desk()
            .chairs
            .get(&ticket)
            .is_some_and(|chair| chair.grant.is_some())
    }

    /// Sits until the grant comes, at the latest until `deadline`; leaves the queue either way.
    pub(crate) fn sit(&self, ticket: Ticket, deadline: Option<Instant>) -> Option<Grant> {
        let mut desk = self.desk();
        let bell = desk.chairs.get(&ticket).map(|chair| Arc::clone(&chair.bell))?;
        loop {
            let granted = desk.chairs.get(&ticket).is_none_or(|chair| chair.grant.is_some());
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if granted || left.is_some_and(|left| left.is_zero()) {
                break;
            }
            desk = match left {
                Some(left) => bell
                    .wait_timeout(desk, left)
                    .map_or_else(|broken| broken.into_inner().0, |woken| woken.0),
                None => bell.wait(desk).unwrap_or_else(std::sync::PoisonError::into_inner),
            };
        }
        let grant = desk.chairs.remove(&ticket).and_then(|chair| chair.grant);
        if grant.is_none() {
            desk.ledger.cancel(ticket);
            desk.grant();
        }
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        grant
    }

    /// Gives a released block to one of its own account who waits for just that, or hands it back.
    pub(crate) fn hand_over(&self, account: AccountId, block: Block) -> Option<Block> {
        let mut desk = self.desk();
        let Some(ticket) = desk.ledger.hand_over(account, block.len() as u64) else {
            return Some(block);
        };
        desk.seat(ticket, Grant::Block(block));
        None
    }
}
