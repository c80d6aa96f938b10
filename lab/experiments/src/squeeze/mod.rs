//! Savings and cost of freeing page pools under memory pressure: the experiments of the kernel patch
//! "xen/blkback: Squeeze page pools if a memory pressure is detected" (2019), with `thermo-nbd` in place of
//! blkback.
//!
//! * [`pressure`]: many devices with I/O in a cgroup under memory pressure, with zram swap: pages swapped in
//!   and out without and with squeezing, for several durations;
//! * [`throughput`]: pools that never keep a free page, the worst case, compared with the default, on memory.
//!
//! The server is a separate process (`server`). The load comes from this process (`client`), or from `dd`
//! through the kernel's NBD client (`nbd_device`). Swap, cgroup and processes are removed when their values
//! are dropped.

mod client;
mod nbd_device;
pub mod pressure;
mod server;
pub mod table;
pub mod throughput;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

/// Default maximum of free pages in a pool, as in blkback.
pub const DEFAULT_PAGES: u64 = 1024;

/// Options of all squeeze experiments.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of the `thermo-nbd` to measure.
    pub thermo_nbd: PathBuf,
    /// Set by the caller to end the run early.
    pub stop: Arc<AtomicBool>,
}

/// Result of one run under memory pressure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureRun {
    /// Number of devices.
    pub devices: usize,
    /// `buffer_squeeze_duration_ms`; 0 means no squeezing, as before the patch.
    pub duration_ms: u64,
    /// Pages swapped in.
    pub pswpin: u64,
    /// Pages swapped out.
    pub pswpout: u64,
    /// Completed requests.
    pub requests: u64,
    /// Peak size of the server's buffers, in bytes.
    pub peak_bytes: u64,
}

/// Result of one throughput run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThroughputRun {
    /// `max_buffer_pages`.
    pub max_buffer_pages: u64,
    /// Throughput in MB/s (10^6 bytes per second).
    pub mb_per_second: f64,
}

/// The last line of a program's output, for error messages.
fn last_line(output: &str) -> &str {
    output.trim().lines().last().unwrap_or("it printed nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_skips_empty_lines() {
        assert_eq!(last_line("connecting\nno such export\n\n"), "no such export");
        assert_eq!(last_line(" \n"), "it printed nothing");
    }
}
