//! What giving free buffers back under pressure saves, and costs: the experiments of the kernel patch "xen/blkback:
//! Squeeze page pools if a memory pressure is detected" (2019) with `thermo-nbd` in the place of blkback.
//!
//! * [`pressure`]: many devices with induced I/O in a group that is short of memory, swap on zram: pages swapped in and
//!   out, without squeezing and with, for several durations;
//! * [`throughput`]: the worst case, no free page ever kept, against the default, on memory.
//!
//! The server is a process of its own (`server`), the load comes from here (`client`) or from `dd` through the kernel's
//! NBD client (`kernel`). Whatever is made for it
//! (swap, group, processes) is undone when it is dropped.

mod client;
mod kernel;
pub mod pressure;
mod server;
pub mod table;
pub mod throughput;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

/// Pages that a pool keeps without being told otherwise, here as in blkback.
pub const DEFAULT_PAGES: u64 = 1024;

/// What all experiments need.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The `thermo-nbd` that is measured.
    pub thermo_nbd: PathBuf,
    /// Set from outside when it shall end early.
    pub stop: Arc<AtomicBool>,
}

/// Swapping of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swapping {
    /// Devices.
    pub devices: usize,
    /// `buffer_squeeze_duration_ms`; 0: no squeezing, as before the patch.
    pub duration_ms: u64,
    /// Pages swapped in.
    pub pswpin: u64,
    /// Pages swapped out.
    pub pswpout: u64,
    /// Requests that were answered meanwhile.
    pub requests: u64,
    /// The most the server's buffers took, in bytes.
    pub peak_bytes: u64,
}

/// Throughput of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// `max_buffer_pages`.
    pub max_buffer_pages: u64,
    /// Megabytes (10⁶) a second.
    pub mb_per_second: f64,
}

/// The last line of what a program said, which tells why it ended.
fn last_words(said: &str) -> &str {
    said.trim().lines().last().unwrap_or("it said nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_is_not_empty_counts() {
        assert_eq!(last_words("connecting\nno such export\n\n"), "no such export");
        assert_eq!(last_words(" \n"), "it said nothing");
    }
}
