//! Page pools for I/O servers. All pools share one byte budget. Buffers are cheap to reuse while memory is
//! plentiful. Free pages return to the kernel within milliseconds under memory pressure.
//!
//! A server keeps free buffers because I/O is bursty. With hundreds of devices, the free buffers push the
//! machine into swap or get the server killed by the OOM killer. Here, each device has a [`Pool`]. A pool
//! starts empty, grows on demand, and keeps at most [`Settings::max_buffer_pages`] free pages at the end of a
//! batch of requests. After a report of memory pressure, a pool keeps no free page for
//! [`Settings::buffer_squeeze_duration_ms`]. Pages in use are never touched. The policy comes from a patch of
//! 2019 for Xen's block back end in the kernel ("xen/blkback: Squeeze page pools if a memory pressure is
//! detected").
//!
//! * [`Pools`] holds all pools of a process in one budget. Free pages count against the budget. A request
//!   that exceeds the budget waits in FIFO order. Each pool has its largest request reserved, so no device
//!   can starve another device or deadlock with itself.
//! * [`Cache`] is a per-thread cache of a pool. Taking and putting back a warm buffer costs one atomic
//!   operation each. Buffers are reused last in, first out, because a small hot set is several times faster
//!   than a large rotating one.
//! * [`ReclaimBus`] calls every registered reclaimer under memory pressure. Pools are added with
//!   [`Pools::register_on`].
//! * [`source`] detects memory pressure. A [`PressureMonitor`] thread polls the sources, reports pressure to
//!   the bus, and shrinks idle pools.
//!
//! ```
//! use thermo_units::Bytes;
//! use thermo_pool::{Pools, Settings};
//!
//! let pools = Pools::new(Bytes::mib(64), Settings::default());
//! let disk = pools.open("disk0", Bytes::mib(1))?;
//! let cache = disk.cache(); // one for each thread that processes requests
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

pub use bus::{Pressure, ReclaimBus, ReclaimSummary, ReclaimerStats, Registration};
pub use class::MAX_BUFFER_SIZE;
pub use error::{AcquireError, OpenError};
pub use pool::{BudgetUsage, Buffer, Cache, Pool, Pools};
pub use pressure_monitor::{PressureMonitor, SourceStatus};
pub use settings::{ReleaseAdvice, Settings};
pub use source::Source;
pub use stats::Stats;
