//! How much memory the server may take, and how it gives it back.

use thermo_pool::{GiveBack, Settings};
use thermo_units::Bytes;

/// The pools.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub struct Memory {
    /// The most that all buffers together may take
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub budget: Bytes,

    /// Free pages an export keeps for the next requests
    #[arg(long, value_name = "PAGES", default_value_t = Settings::default().max_buffer_pages)]
    max_buffer_pages: u64,

    /// After a sign of pressure keep no free page for this long, in milliseconds; 0: ignore pressure
    #[arg(long, value_name = "MS", default_value_t = Settings::default().buffer_squeeze_duration_ms)]
    buffer_squeeze_duration_ms: u64,

    /// Let the kernel take pages when it needs them (MADV_FREE), not at once (MADV_DONTNEED)
    #[arg(long)]
    lazy: bool,
}

impl Memory {
    pub fn settings(&self) -> Settings {
        Settings {
            max_buffer_pages: self.max_buffer_pages,
            buffer_squeeze_duration_ms: self.buffer_squeeze_duration_ms,
            give_back: if self.lazy {
                GiveBack::Free
            } else {
                GiveBack::DontNeed
            },
            ..Settings::default()
        }
    }
}
