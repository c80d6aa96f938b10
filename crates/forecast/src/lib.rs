//! Forecast: what schemes would have saved and cost while a recording was made.
//!
//! [`Replay`] reads a recording that was made without schemes. For each scheme file a `policy` hands every
//! snapshot to [`thermo_engine::scheme::apply_schemes`], the code that acts on real processes: pattern,
//! filters, quotas, priorities and watermarks are the engine's. Its [`Operations`](thermo_engine::Operations)
//! are a replayed machine, which only notes the memory that leaves.
//!
//! * A target that was scanned is replayed by idle age (`idle_memory`). The live engine applies schemes to
//!   runs of pages; a recording has at most some thousand regions, which average over unlike pages. The
//!   access tables are exact: bytes by idle age, and bytes accessed again by the idle age they had. They say
//!   nothing about addresses.
//! * A target that was sampled is replayed by its recorded regions (`region_memory`), as the live engine
//!   would. So is a scanned target if a scheme tests addresses or sizes of regions.
//!
//! Paging out does not change which pages a program accesses, so the accesses of the recording hold for the
//! replay: memory that left and is accessed again in the recording is a refault.
//!
//! This crate opens no files and reads no clock.

mod draw;
mod forecast;
mod idle_memory;
mod machine;
mod policy;
mod region_memory;
mod replay;
mod target;

mod text;
mod timeline;

pub use forecast::{FileForecast, Forecast, OverTime, SCHEMA, SchemeForecast};
pub use replay::{ForecastError, Replay, SchemeFile};
pub use timeline::Interval;

use thermo_units::{Nanos, Permille};

/// CPU time of paging out 1 MiB to zram, measured: docs/evaluation.md, proactive reclaim (3.0 to 3.2 ms).
pub const PAGEOUT_COST_PER_MIB: Nanos = Nanos::micros(3100);

/// What a recording cannot say and a forecast needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assumptions {
    /// Size of compressed memory as a share of its size; `None`: not known.
    pub compressed: Option<Permille>,
    /// CPU time of paging out 1 MiB: quotas of CPU time limit bytes by it.
    pub pageout_cost_per_mib: Nanos,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self {
            compressed: None,
            pageout_cost_per_mib: PAGEOUT_COST_PER_MIB,
        }
    }
}
