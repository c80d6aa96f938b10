//! The locks and atomics of this crate: those of `std`, or loom's where every interleaving is tried.

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
    },
    thread,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
    },
    thread,
};

/// Locks, also after a thread panicked with the lock held: no lock of this crate is held across code that may
/// panic halfway through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
