//! What `thermo`, `thermo-nbd` and `thermo-lab` do alike: [`exit`] codes, [`interrupt`]ion by Ctrl-C, data on standard
//! [`output`].
//!
//! Stands on `thermo-kernel` alone, so that the block server can use it. Not here: flags, which each command
//! declares itself, and the progress lines of monitoring, which `thermo` has alone.

pub mod exit;
pub mod interrupt;
pub mod output;
