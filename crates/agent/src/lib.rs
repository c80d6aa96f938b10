//! The daemon: what goes on running and is talked to.
//!
//! [`lifecycle`] follows applications from the foreground to the cache and back, and hints the kernel about their
//! memory. Deliberately not here: how memory is watched and acted on (`thermo_runtime`) and the command line.

pub mod lifecycle;
