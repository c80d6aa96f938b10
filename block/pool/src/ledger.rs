//! Who holds how much of the byte budget, and who waits: plain bookkeeping, no locks, no clock.
//!
//! Each account (a device) has a *reserve*, its largest request; the rest of the limit is common. An account uses
//! its reserve first and the common part for what exceeds it, so what it gives back goes to the common part first.
//! Waiting is first come, first served for the common part. One may pass the queue only with what is its own: a
//! request that its account's reserve covers, when nobody of the same account waits before it. Hence a device
//! that holds nothing never waits for another device, and no two devices can wait for each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An account's number.
pub(crate) type AccountId = u64;
/// A place in the queue.
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

/// The books.
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

    /// Changes the limit, unless the reserves alone exceed it. More may be in use than a lower limit allows; it is
    /// then not lent again.
    pub(crate) fn set_limit(&mut self, limit: u64) -> bool {
        let fits = self.reserved <= limit;
        if fits {
            self.limit = limit;
        }
        fits
    }

    /// Opens an account, unless the reserves would exceed the limit.
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

    /// Closes an account: what it holds and reserves is free again.
    pub(crate) fn close(&mut self, id: AccountId) {
        self.uncharge(id, u64::MAX);
        if let Some(account) = self.accounts.remove(&id) {
            self.reserved -= account.reserve;
        }
        self.queue.retain(|waiter| waiter.account != id);
    }

    /// Charges `bytes` if that is this account's turn.
    pub(crate) fn try_charge(&mut self, id: AccountId, bytes: u64) -> bool {
        let own_waits = self.queue.iter().any(|waiter| waiter.account == id);
        let granted = !own_waits && self.fits(id, bytes, !self.queue.is_empty());
        if granted {
            self.charge(id, bytes);
        }
        granted
    }

    // Whether `bytes` more fit; `behind`: others wait for the common part, so only the own reserve may be used.
    fn fits(&self, id: AccountId, bytes: u64, behind: bool) -> bool {
        let Some(account) = self.accounts.get(&id) else {
            return false;
        };
        let more = account.common(account.used.saturating_add(bytes)) - account.common(account.used);
        let common = self.limit - self.reserved;
        more == 0 || (!behind && self.common_used.saturating_add(more) <= common)
    }

    fn charge(&mut self, id: AccountId, bytes: u64) {
        if let Some(account) = self.accounts.get_mut(&id) {
            self.common_used += account.common(account.used + bytes) - account.common(account.used);
            account.used += bytes;
            self.used += bytes;
            self.peak = self.peak.max(self.used);
        }
    }

    /// Takes at most `bytes` off an account.
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

    /// Takes a request out of the queue. Those behind it may be next: [`Ledger::grant`].
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.queue.retain(|waiter| waiter.ticket != ticket);
    }

    /// Charges every request whose turn has come; their tickets, in order.
    pub(crate) fn grant(&mut self) -> Vec<Ticket> {
        let mut granted = Vec::new();
        // Everybody behind the first who waits for the common part waits for it too.
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

    /// Whether a block of `bytes` that account `id` just stopped using can go, as it is, to the first of its own
    /// requests that wait: of the same size, and nobody before it would get the bytes.
    pub(crate) fn hand_over(&mut self, id: AccountId, bytes: u64) -> Option<Ticket> {
        let at = self.queue.iter().position(|waiter| waiter.account == id)?;
        let used = self.accounts.get(&id)?.used;
        let own_part = used <= self.accounts.get(&id)?.reserve;
        if self.queue[at].bytes != bytes || (at > 0 && !own_part) {
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
    fn reserves_never_exceed_the_limit() {
        let mut ledger = Ledger::new(10);
        let first = ledger.open(6).unwrap();
        assert_eq!((ledger.open(5), ledger.open(u64::MAX)), (None, None));
        ledger.close(first);
        ledger.open(5).unwrap();
        assert!(!ledger.set_limit(4) && ledger.set_limit(5));
    }

    #[test]
    fn a_device_never_waits_for_its_own_reserve() {
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
    fn a_large_request_is_not_overtaken_by_small_ones() {
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
    fn who_gives_up_waiting_lets_those_behind_pass() {
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
    fn a_block_is_handed_over_only_to_whom_its_bytes_would_go() {
        let mut ledger = Ledger::new(4);
        let (one, two) = (ledger.open(0).unwrap(), ledger.open(0).unwrap());
        assert!(ledger.try_charge(one, 4));
        let other = ledger.wait(two, 1);
        let own = ledger.wait(one, 2);
        assert_eq!(ledger.hand_over(one, 2), None, "another was first");
        ledger.cancel(other);
        assert_eq!(ledger.hand_over(one, 1), None, "another size");
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
            (0..3usize, 1..6u64).prop_map(|(who, bytes)| Step::Charge(who, bytes)),
            (0..3usize, 1..6u64).prop_map(|(who, bytes)| Step::Wait(who, bytes)),
            (0..3usize).prop_map(Step::Finish),
            Just(Step::Cancel),
        ];
        prop::collection::vec(step, 1..60)
    }

    // What the caller of a ledger knows: what each account holds, and what waits.
    struct Users {
        ledger: Ledger,
        ids: Vec<AccountId>,
        held: Vec<Vec<u64>>,
        waiting: Vec<(Ticket, usize, u64)>,
    }

    impl Users {
        fn take(&mut self, step: &Step) {
            match *step {
                Step::Charge(who, bytes) => {
                    if self.ledger.try_charge(self.ids[who], bytes) {
                        self.held[who].push(bytes);
                    }
                }
                Step::Wait(who, bytes) => {
                    let ticket = self.ledger.wait(self.ids[who], bytes);
                    self.waiting.push((ticket, who, bytes));
                    self.grant();
                }
                Step::Finish(who) => {
                    if let Some(bytes) = self.held[who].pop() {
                        self.ledger.uncharge(self.ids[who], bytes);
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
                let (_, who, bytes) = self.waiting.remove(at);
                let before = self.waiting[..at].iter();
                assert!(
                    before.clone().all(|waiter| waiter.1 != who),
                    "overtaken by its own account"
                );
                self.held[who].push(bytes);
            }
        }
    }

    proptest! {
        #![proptest_config(Config { cases: 300, rng_seed: RngSeed::Fixed(8), failure_persistence: None, ..Config::default() })]

        #[test]
        fn books_balance_and_everybody_is_served(steps in steps()) {
            let mut ledger = Ledger::new(20);
            let ids: Vec<_> = (0..3).map(|_| ledger.open(5).unwrap()).collect();
            let mut users = Users { ledger, ids, held: vec![Vec::new(); 3], waiting: Vec::new() };
            for step in &steps {
                users.take(step);
                let held: Vec<u64> = users.held.iter().map(|held| held.iter().sum()).collect();
                prop_assert_eq!(users.ledger.used(), held.iter().sum::<u64>());
                prop_assert!(users.ledger.used() <= 20);
                for (&id, &held) in users.ids.iter().zip(&held) {
                    prop_assert_eq!(users.ledger.used_by(id), held);
                }
                // Never stuck: whoever waits and holds nothing would have been served from its reserve.
                for &(_, who, _) in &users.waiting {
                    prop_assert!(held[who] > 0);
                }
            }
            // When all finish, all are served.
            for round in 0..1000 {
                users.take(&Step::Finish(round % 3));
            }
            prop_assert!(users.waiting.is_empty());
            prop_assert_eq!(users.ledger.used(), 0);
        }
    }
}
