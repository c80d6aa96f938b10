//! The state that all pools of a process share: the budget, the settings of new pools, and the list of pools.
//! The type of a pool is a parameter, because a pool refers to its registry.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::budget::Budget;
use crate::settings::AtomicSettings;

#[derive(Debug)]
pub(crate) struct Registry<P> {
    pub(crate) budget: Budget,
    pub(crate) defaults: AtomicSettings,
    members: Mutex<BTreeMap<String, Weak<P>>>,
}

impl<P> Registry<P> {
    pub(crate) fn new(limit: u64, defaults: AtomicSettings) -> Self {
        Self {
            budget: Budget::new(limit),
            defaults,
            members: Mutex::new(BTreeMap::new()),
        }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<String, Weak<P>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pools, sorted by name. Do not keep the references: dropping the last reference to a pool takes the
    /// lock of this list.
    pub(crate) fn pools(&self) -> Vec<Arc<P>> {
        self.members().values().filter_map(Weak::upgrade).collect()
    }

    /// The pools, those with `is_first` in front.
    pub(crate) fn pools_from(&self, is_first: impl Fn(&P) -> bool) -> Vec<Arc<P>> {
        let mut pools = self.pools();
        pools.sort_by_key(|pool| !is_first(pool));
        pools
    }

    /// Adds a pool. `None` if the name is taken.
    pub(crate) fn add(&self, name: &str, make: impl FnOnce() -> Arc<P>) -> Option<Arc<P>> {
        let mut members = self.members();
        if members.get(name).is_some_and(|member| member.strong_count() > 0) {
            return None;
        }
        let pool = make();
        members.insert(name.to_owned(), Arc::downgrade(&pool));
        Some(pool)
    }

    /// Removes a closed pool, unless a new pool has its name.
    pub(crate) fn remove(&self, name: &str) {
        let mut members = self.members();
        if members.get(name).is_some_and(|member| member.strong_count() == 0) {
            members.remove(name);
        }
    }
}
