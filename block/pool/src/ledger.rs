//! Accounting of the byte budget and the queue of waiting requests. Plain data: no locks, no clock.
//!
//! Each account (a device) has a *reserve*, the size of its largest request. The rest of the limit is the
//! *common part*. An account uses its reserve first, and the common part for the excess. Bytes it gives back
//! go to the common part first. Requests for the common part are served in FIFO order. A request may pass the
//! queue only if the reserve of its account covers it and no request of the same account waits. So a device
//! that holds nothing never waits for another device, and no two devices can deadlock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Identifier of an account.
pub(crate) type AccountId = u64;
/// Identifier of a waiting request.
pub(crate) type Ticket = u64;

#[derive(Debug, Default)]
struct Account {
    reserve: u64,
    used: u64,
}

impl Account {
    fn common(&self, used: u64) -> u64 {
        used.saturating_sub(self.reserve)
    }
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    account: AccountId,
    bytes: u64,
}

/// The accounts, and the requests that wait.
#[derive(Debug)]
pub(crate) struct Ledger {
    limit: u64,
    reserved: u64,
    common_used: u64,
    used: u64,
    peak: u64,
    accounts: BTreeMap<AccountId, Account>,
    queue: VecDeque<Waiter>,
    next: u64,
}

impl Ledger {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            reserved: 0,
            common_used: 0,
            used: 0,
            peak: 0,
            accounts: BTreeMap::new(),
            queue: VecDeque::new(),
            next: 0,
        }
    }

    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) const fn reserved(&self) -> u64 {
        self.reserved
    }

    pub(crate) const fn used(&self) -> u64 {
        self.used
    }

    pub(crate) const fn peak(&self) -> u64 {
        self.peak
    }

    pub(crate) fn used_by(&self, id: AccountId) -> u64 {
        self.accounts.get(&id).map_or(0, |account| account.used)
    }

    /// Changes the limit, unless the reserves exceed the new limit. If more is in use than a lower limit
    /// allows, nothing new is charged until enough is given back.
    pub(crate) fn set_limit(&mut self, limit: u64) -> bool {
        let fits = self.reserved <= limit;
        if fits {
            self.limit = limit;
        }
        fits
    }

    /// Opens an account. `None` if the reserves would exceed the limit.
    pub(crate) fn open(&mut self, reserve: u64) -> Option<AccountId> {
        let reserved = self
            .reserved
            .checked_add(reserve)
            .filter(|&sum| sum <= self.limit)?;
        self.reserved = reserved;
        self.next += 1;
        self.accounts.insert(self.next, Account { reserve, used: 0 });
        Some(self.next)
    }

    /// Closes an account. Its charge and its reserve become free.
    pub(crate) fn close(&mut self, id: AccountId) {
        self.uncharge(id, u64::MAX);
        if let Some(account) = self.accounts.remove(&id) {
            self.reserved -= account.reserve;
        }
        self.queue.retain(|waiter| waiter.account != id);
    }

    /// Charges `bytes` if they fit and no earlier request has precedence.
    pub(crate) fn try_charge(&mut self, id: AccountId, bytes: u64) -> bool {
        let account_waits = self.queue.iter().any(|waiter| waiter.account == id);
        let granted = !account_waits && self.fits(id, bytes, !self.queue.is_empty());
        if granted {
            self.charge(id, bytes);
        }
        granted
    }

    // Whether `bytes` more fit. With `others_wait`, other requests wait for the common part, so only the
    // account's reserve may be used.
    fn fits(&self, id: AccountId, bytes: u64, others_wait: bool) -> bool {
        let Some(account) = self.accounts.get(&id) else {
            return false;
        };
        let more = account.common(account.used.saturating_add(bytes)) - account.common(account.used);
        let common = self.limit - self.reserved;
        more == 0 || (!others_wait && self.common_used.saturating_add(more) <= common)
    }

    fn charge(&mut self, id: AccountId, bytes: u64) {
        if let Some(account) = self.accounts.get_mut(&id) {
            self.common_used += account.common(account.used + bytes) - account.common(account.used);
            account.used += bytes;
            self.used += bytes;
            self.peak = self.peak.max(self.used);
        }
    }

    /// Reduces the charge of an account by at most `bytes`.
    pub(crate) fn uncharge(&mut self, id: AccountId, bytes: u64) {
        if let Some(account) = self.accounts.get_mut(&id) {
            let bytes = bytes.min(account.used);
            self.common_used -= account.common(account.used) - account.common(account.used - bytes);
            account.used -= bytes;
            self.used -= bytes;
        }
    }

    /// Queues a request.
    pub(crate) fn wait(&mut self, account: AccountId, bytes: u64) -> Ticket {
        self.next += 1;
        self.queue.push_back(Waiter {
            ticket: self.next,
            account,
            bytes,
        });
        self.next
    }

    /// Removes a request from the queue. Call [`Ledger::grant`] afterwards: the requests behind it may fit
    /// now.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.queue.retain(|waiter| waiter.ticket != ticket);
    }

    /// Charges every request that can be served now. Returns their tickets, in order.
    pub(crate) fn grant(&mut self) -> Vec<Ticket> {
        let mut granted = Vec::new();
        // Once a request waits for the common part, all requests behind it wait for it, too.
        let mut blocked = false;
        let mut accounts_blocked = BTreeSet::new();
        let mut at = 0;
        while let Some(&Waiter {
            ticket,
            account,
            bytes,
        }) = self.queue.get(at)
        {
            if !accounts_blocked.contains(&account) && self.fits(account, bytes, blocked) {
                self.charge(account, bytes);
                self.queue.remove(at);
                granted.push(ticket);
            } else {
                blocked = true;
                accounts_blocked.insert(account);
                at += 1;
            }
        }
        granted
    }

    /// Whether a block of `bytes` that account `id` has just put back can pass directly to the first waiting
    /// request of the same account. The size must match, and no earlier request may be entitled to the bytes.
    pub(crate) fn hand_over(&mut self, id: AccountId, bytes: u64) -> Option<Ticket> {
        let at = self.queue.iter().position(|waiter| waiter.account == id)?;
        let used = self.accounts.get(&id)?.used;
        let within_reserve = used <= self.accounts.get(&id)?.reserve;
        if self.queue[at].bytes != bytes || (at > 0 && !within_reserve) {
            return None;
        }
        self.queue.remove(at).map(|waiter| waiter.ticket)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngSeed};

    #[test]
    fn ledger_reserves_never_exceed_limit() {
        let mut ledger = Ledger::new(10);
        let first = ledger.open(6).unwrap();
        assert_eq!((ledger.open(5), ledger.open(u64::MAX)), (None, None));
        ledger.close(first);
        ledger.open(5).unwrap();
        assert!(!ledger.set_limit(4) && ledger.set_limit(5));
    }

    #[test]
    fn ledger_serves_own_reserve_without_waiting() {
        let mut ledger = Ledger::new(10);
        let (greedy, modest) = (ledger.open(2).unwrap(), ledger.open(2).unwrap());
        assert!(ledger.try_charge(greedy, 8) && !ledger.try_charge(greedy, 1));
        let waits = ledger.wait(greedy, 3);
        assert!(ledger.try_charge(modest, 2));
        assert!(!ledger.try_charge(modest, 1));
        ledger.uncharge(greedy, 2);
        assert_eq!(ledger.grant(), []);
        ledger.uncharge(greedy, 1);
        assert_eq!(ledger.grant(), [waits]);
    }

    #[test]
    fn ledger_serves_large_request_before_later_small_ones() {
        let mut ledger = Ledger::new(10);
        let (one, two) = (ledger.open(0).unwrap(), ledger.open(0).unwrap());
        assert!(ledger.try_charge(one, 8));
        let large = ledger.wait(two, 5);
        let small = ledger.wait(one, 1);
        assert!(!ledger.try_charge(one, 1));
        assert_eq!(ledger.grant(), []);
        ledger.uncharge(one, 4);
        assert_eq!(ledger.grant(), [large, small]);
    }

    #[test]
    fn ledger_grants_next_request_after_cancel() {
        let mut ledger = Ledger::new(4);
        let one = ledger.open(0).unwrap();
        assert!(ledger.try_charge(one, 3));
        let large = ledger.wait(one, 4);
        let small = ledger.wait(one, 1);
        assert_eq!(ledger.grant(), []);
        ledger.cancel(large);
        assert_eq!(ledger.grant(), [small]);
    }

    #[test]
    fn ledger_hands_over_only_to_entitled_request() {
        let mut ledger = Ledger::new(4);
        let (one, two) = (ledger.open(0).unwrap(), ledger.open(0).unwrap());
        assert!(ledger.try_charge(one, 4));
        let other = ledger.wait(two, 1);
        let own = ledger.wait(one, 2);
        assert_eq!(ledger.hand_over(one, 2), None, "an earlier request waits");
        ledger.cancel(other);
        assert_eq!(ledger.hand_over(one, 1), None, "the size differs");
        assert_eq!(ledger.hand_over(one, 2), Some(own));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Charge(usize, u64),
        Wait(usize, u64),
        Finish(usize),
        Cancel,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..3usize, 1..6u64).prop_map(|(user, bytes)| Step::Charge(user, bytes)),
            (0..3usize, 1..6u64).prop_map(|(user, bytes)| Step::Wait(user, bytes)),
            (0..3usize).prop_map(Step::Finish),
            Just(Step::Cancel),
        ];
        prop::collection::vec(step, 1..60)
    }

    // The state a caller of the ledger keeps: the bytes held by each account, and the waiting requests.
    struct Users {
        ledger: Ledger,
        ids: Vec<AccountId>,
        held: Vec<Vec<u64>>,
        waiting: Vec<(Ticket, usize, u64)>,
    }

    impl Users {
        fn apply(&mut self, step: &Step) {
            match *step {
                Step::Charge(user, bytes) => {
                    if self.ledger.try_charge(self.ids[user], bytes) {
                        self.held[user].push(bytes);
                    }
                }
                Step::Wait(user, bytes) => {
                    let ticket = self.ledger.wait(self.ids[user], bytes);
                    self.waiting.push((ticket, user, bytes));
                    self.grant();
                }
                Step::Finish(user) => {
                    if let Some(bytes) = self.held[user].pop() {
                        self.ledger.uncharge(self.ids[user], bytes);
                        self.grant();
                    }
                }
                Step::Cancel => {
                    if let Some((ticket, ..)) = self.waiting.pop() {
                        self.ledger.cancel(ticket);
                        self.grant();
                    }
                }
            }
        }

        fn grant(&mut self) {
            for ticket in self.ledger.grant() {
                let at = self.waiting.iter().position(|waiter| waiter.0 == ticket).unwrap();
                let (_, user, bytes) = self.waiting.remove(at);
                let before = self.waiting[..at].iter();
                assert!(
                    before.clone().all(|waiter| waiter.1 != user),
                    "overtaken by its own account"
                );
                self.held[user].push(bytes);
            }
        }
    }

    proptest! {
        #![proptest_config(Config { cases: 300, rng_seed: RngSeed::Fixed(8), failure_persistence: None, ..Config::default() })]

        #[test]
        fn ledger_balances_and_serves_every_request(steps in steps()) {
            let mut ledger = Ledger::new(20);
            let ids: Vec<_> = (0..3).map(|_| ledger.open(5).unwrap()).collect();
            let mut users = Users { ledger, ids, held: vec![Vec::new(); 3], waiting: Vec::new() };
            for step in &steps {
                users.apply(step);
                let held: Vec<u64> = users.held.iter().map(|held| held.iter().sum()).collect();
                prop_assert_eq!(users.ledger.used(), held.iter().sum::<u64>());
                prop_assert!(users.ledger.used() <= 20);
                for (&id, &held) in users.ids.iter().zip(&held) {
                    prop_assert_eq!(users.ledger.used_by(id), held);
                }
                // No deadlock: a waiting account that holds nothing would have been served from its reserve.
                for &(_, user, _) in &users.waiting {
                    prop_assert!(held[user] > 0);
                }
            }
            // Once all holders finish, every request is served.
            for round in 0..1000 {
                users.apply(&Step::Finish(round % 3));
            }
            prop_assert!(users.waiting.is_empty());
            prop_assert_eq!(users.ledger.used(), 0);
        }
    }
}
