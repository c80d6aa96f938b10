//! The daemon.
//!
//! [`lifecycle`] follows applications from the foreground to the cache and back, and reclaims or prefetches
//! their memory. Monitoring and schemes are in `thermo_runtime`; the command line is in `crates/cli`.

pub mod lifecycle;
