//! The locks and atomics of this crate: those of `std`, or of loom when testing all interleavings.

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

/// Locks a mutex and ignores poisoning: this crate holds no lock across code that may panic halfway through a
/// change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
