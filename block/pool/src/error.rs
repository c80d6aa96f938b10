//! Errors of the pools.

use std::io;

use thermo_units::{Bytes, Nanos};

/// A pool could not be opened, or the budget could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Each pool reserves its largest request, so that a pool never waits for another. The reserves must fit
    /// in the budget.
    #[error(
        "pool {name} must reserve {requested} for its largest request, but {reserved} of the budget of {budget} are already reserved. Raise the budget, lower the largest request, or open fewer pools"
    )]
    NoReserve {
        /// Name of the pool.
        name: String,
        /// Largest request of the pool.
        requested: Bytes,
        /// Bytes reserved by other pools.
        reserved: Bytes,
        /// The budget of all pools.
        budget: Bytes,
    },
    /// The reserves of the open pools exceed the new budget.
    #[error(
        "a budget of {requested} is too small: {reserved} are reserved for the largest requests of the open pools. Close some pools first"
    )]
    BelowReserves {
        /// The requested budget.
        requested: Bytes,
        /// Bytes reserved by the open pools.
        reserved: Bytes,
    },
    /// Statistics identify pools by name, so names are unique.
    #[error("a pool named {0} already exists. Give each pool a unique name")]
    NameTaken(String),
    /// The request is larger than any buffer.
    #[error(
        "pool {name}: a largest request of {requested} exceeds the maximum buffer size of {max}. Split larger requests"
    )]
    TooLarge {
        /// Name of the pool.
        name: String,
        /// Requested bytes.
        requested: Bytes,
        /// [`crate::MAX_BUFFER_SIZE`].
        max: Bytes,
    },
}

/// No buffer could be acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The request exceeds the size that the pool was opened for.
    #[error(
        "pool {name} lends at most {max_request} per buffer, {requested} were requested. Split the request, or open the pool with a larger maximum"
    )]
    TooLarge {
        /// Name of the pool.
        name: String,
        /// Requested bytes.
        requested: Bytes,
        /// The largest request of the pool.
        max_request: Bytes,
    },
    /// The budget is used up and the caller does not wait.
    #[error(
        "pool {name}: {requested} do not fit in the budget: {used} of {budget} are in use. Wait, or raise the budget"
    )]
    Full {
        /// Name of the pool.
        name: String,
        /// Requested bytes, rounded up to a buffer size.
        requested: Bytes,
        /// Bytes that all pools hold.
        used: Bytes,
        /// The budget of all pools.
        budget: Bytes,
    },
    /// The budget was used up until the deadline.
    #[error(
        "pool {name}: {requested} did not become free within {waited}: {used} of the budget of {budget} are in use. Wait longer, or raise the budget"
    )]
    TimedOut {
        /// Name of the pool.
        name: String,
        /// Requested bytes, rounded up to a buffer size.
        requested: Bytes,
        /// Time waited.
        waited: Nanos,
        /// Bytes that all pools hold.
        used: Bytes,
        /// The budget of all pools.
        budget: Bytes,
    },
    /// The kernel cannot map more address space.
    #[error(
        "pool {name}: the kernel cannot map more memory: {source}. Check `ulimit -v` and vm.max_map_count"
    )]
    NoMemory {
        /// Name of the pool.
        name: String,
        /// The error of the kernel.
        source: io::Error,
    },
}
