//! Options for buffer memory: the budget, and how free buffers are released.

use thermo_pool::{ReleaseAdvice, Settings};
use thermo_units::Bytes;

/// Memory options.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub struct Memory {
    /// Maximum memory of all buffers together
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub budget: Bytes,

    /// Free pages that each export keeps for later requests
    #[arg(long, value_name = "PAGES", default_value_t = Settings::default().max_buffer_pages)]
    max_buffer_pages: u64,

    /// After a report of memory pressure, keep no free page for this many milliseconds; 0: ignore pressure
    #[arg(long, value_name = "MS", default_value_t = Settings::default().buffer_squeeze_duration_ms)]
    buffer_squeeze_duration_ms: u64,

    /// Release pages lazily (MADV_FREE) instead of at once (MADV_DONTNEED)
    #[arg(long)]
    lazy: bool,
}

impl Memory {
    pub fn settings(&self) -> Settings {
        Settings {
            max_buffer_pages: self.max_buffer_pages,
            buffer_squeeze_duration_ms: self.buffer_squeeze_duration_ms,
            release_advice: if self.lazy {
                ReleaseAdvice::Free
            } else {
                ReleaseAdvice::DontNeed
            },
            ..Settings::default()
        }
    }
}
