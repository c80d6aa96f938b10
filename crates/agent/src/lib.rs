//! The daemon.
//!
//! [`lifecycle`] follows applications from the foreground to the cache and back, and reclaims or prefetches
//! their memory. [`history`] answers questions about the past. Monitoring and schemes are in
//! `thermo_runtime`; the command line is in `crates/cli`.

// Reads what others wrote: an index that could panic or a cast that could lose bits is an error here
// (CONTRIBUTING.md, Style).
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod agent;
pub mod api;
pub mod audience;
pub mod budget_division;
pub mod config;
pub mod decisions;
pub mod export;
pub mod guard;
pub mod history;
pub mod identity;
pub mod kubernetes;
pub mod ledger;
pub mod lifecycle;
pub mod matching;
pub mod policy;
pub mod pressure;
pub mod process_table;
pub mod service;
