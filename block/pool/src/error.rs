//! What can go wrong.

use std::io;

use thermo_units::{Bytes, Nanos};

/// Why a pool could not be opened, or the budget not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Every pool has one largest request reserved, so that it never waits for another; the sum must fit.
    #[error(
        "pool {name} needs {asked} reserved for its largest request, but of the budget of {budget} already {reserved} are reserved. Raise the budget, lower the largest request, or open fewer pools"
    )]
    NoReserve {
        /// The pool.
        name: String,
        /// Its largest request.
        asked: Bytes,
        /// What other pools reserved.
        reserved: Bytes,
        /// The whole.
        budget: Bytes,
    },
    /// The reserves of the open pools need more than the new budget.
    #[error(
        "a budget of {asked} is too small: {reserved} are reserved for the largest requests of the open pools. Close some first"
    )]
    BelowReserves {
        /// The budget that was asked for.
        asked: Bytes,
        /// What the open pools reserved.
        reserved: Bytes,
    },
    /// Statistics are told apart by name.
    #[error("there is already a pool named {0}. Give each its own name")]
    NameTaken(String),
    /// No buffer is that large.
    #[error(
        "pool {name}: a largest request of {asked} is more than any buffer holds, {most}. Split such requests"
    )]
    TooLarge {
        /// The pool.
        name: String,
        /// What was asked for.
        asked: Bytes,
        /// [`crate::LARGEST`].
        most: Bytes,
    },
}

/// Why there is no buffer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Larger than the largest request the pool was opened for.
    #[error(
        "pool {name} lends at most {largest} at a time, {asked} were asked for. Split the request, or open the pool for larger ones"
    )]
    TooLarge {
        /// The pool.
        name: String,
        /// What was asked for.
        asked: Bytes,
        /// What the pool was opened for.
        largest: Bytes,
    },
    /// Nothing is left, and the caller did not want to wait.
    #[error(
        "pool {name}: {asked} do not fit into the budget of {budget}, of which {used} are in use. Wait, or raise the budget"
    )]
    Full {
        /// The pool.
        name: String,
        /// What was asked for, rounded up to a buffer.
        asked: Bytes,
        /// What all pools hold.
        used: Bytes,
        /// The whole.
        budget: Bytes,
    },
    /// Nothing came free in time.
    #[error(
        "pool {name}: {asked} did not come free within {waited}: {used} of the budget of {budget} are in use. Wait longer, or raise the budget"
    )]
    TimedOut {
        /// The pool.
        name: String,
        /// What was asked for, rounded up to a buffer.
        asked: Bytes,
        /// How long it was waited.
        waited: Nanos,
        /// What all pools hold.
        used: Bytes,
        /// The whole.
        budget: Bytes,
    },
    /// The kernel has no address space for us.
    #[error("pool {name}: the kernel maps no more memory: {source}. See `ulimit -v` and vm.max_map_count")]
    NoMemory {
        /// The pool.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
}
