//! Page pools for I/O servers: fast while memory is plenty, inside one byte budget always, and back with the kernel
//! within milliseconds when memory is short.
//!
//! A server keeps free buffers because I/O is bursty. Serving hundreds of devices, those free buffers push the machine
//! into swap, or the server into the arms of the OOM killer. Here every device has a [`Pool`] that starts empty,
//! grows while requests are processed, and keeps at most [`Settings::max_buffer_pages`] pages when a batch of them
//! ends. When pressure is reported it keeps none, for [`Settings::buffer_squeeze_duration_ms`]. Only pages that are
//! not in use are ever touched. This is what a patch of 2019 did for Xen's block back end in the kernel ("xen/blkback:
//! Squeeze page pools if a memory pressure is detected").
//!
//! * [`Pools`] holds all pools of a process in one budget, free pages included. Who finds it used up waits, in order,
//!   and each pool has one largest request reserved, so no device can starve another, nor itself.
//! * [`Cache`] is one thread's way to a pool: taking and putting a warm buffer is one atomic operation, last in first
//!   out, because a small hot pool is several times faster than a big one that rotates.
//! * [`Bus`] tells whoever has memory to give; the pools [`join`](Pools::join) it.
//! * [`source`] notices pressure; a [`Keeper`] thread asks the sources, reports, and shrinks what batches left behind.
//!
//! ```
//! use thermo_units::Bytes;
//! use thermo_pool::{Pools, Settings};
//!
//! let pools = Pools::new(Bytes::mib(64), Settings::default());
//! let disk = pools.open("disk0", Bytes::mib(1))?;
//! let cache = disk.cache(); // one for each thread that does requests
//! let mut buffer = cache.acquire(4096)?;
//! buffer[..5].copy_from_slice(b"hello");
//! drop(buffer);
//! cache.end_batch();
//! assert_eq!(disk.stats().free_pages, 1);
//! pools.report_pressure();
//! assert_eq!(disk.stats().free_pages, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod bus;
mod class;
mod depot;
mod error;
mod inner;
mod ledger;
mod magazine;
mod pool;
mod pressure_monitor;
mod raw;
mod reclaim_batch;
mod registry;
mod settings;
pub mod source;
mod stats;
mod sync;

pub use bus::{Bus, Pressure, Reclaimer, Registration, Round};
pub use class::LARGEST;
pub use error::{AcquireError, OpenError};
pub use pool::{Buffer, Cache, Pool, Pools, Usage};
pub use pressure_monitor::{Keeper, SourceState};
pub use settings::{GiveBack, Settings};
pub use source::Source;
pub use stats::Stats;
