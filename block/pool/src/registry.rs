//! What all pools of a process share: the budget, the settings of new pools, and the list of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::budget::Budget;
use crate::inner::Inner;
use crate::settings::Knobs;

#[derive(Debug)]
pub(crate) struct House {
    pub(crate) budget: Budget,
    pub(crate) defaults: Knobs,
    members: Mutex<BTreeMap<String, Weak<Inner>>>,
}

impl House {
    pub(crate) fn new(limit: u64, defaults: Knobs) -> Self {
        Self {
            budget: Budget::new(limit),
            defaults,
            members: Mutex::new(BTreeMap::new()),
        }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Inner>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pools, by name. They are held only while they are looked at: dropping the last hold of one takes the lock.
    pub(crate) fn pools(&self) -> Vec<Arc<Inner>> {
        self.members().values().filter_map(Weak::upgrade).collect()
    }

    /// The pools, `first` before the others.
    pub(crate) fn pools_after(&self, first: &Inner) -> Vec<Arc<Inner>> {
        let mut pools = self.pools();
        pools.sort_by_key(|pool| pool.account != first.account);
        pools
    }

    /// Makes a pool under a name that none has.
    pub(crate) fn join(&self, name: &str, make: impl FnOnce() -> Arc<Inner>) -> Option<Arc<Inner>> {
        let mut members = self.members();
        if members.get(name).is_some_and(|member| member.strong_count() > 0) {
            return None;
        }
        let pool = make();
        members.insert(name.to_owned(), Arc::downgrade(&pool));
        Some(pool)
    }

    /// Forgets a pool that is gone, unless a new one has its name.
    pub(crate) fn forget(&self, name: &str) {
        let mut members = self.members();
        if members.get(name).is_some_and(|member| member.strong_count() == 0) {
            members.remove(name);
        }
    }
}
