//! Code shared by the commands `thermo`, `thermo-nbd` and `thermo-lab`: [`exit`] codes, [`interrupt`]ion by
//! Ctrl-C, sockets from a service manager ([`activation`]), data on standard [`output`], the [`watchdog`] of
//! systemd.
//!
//! Depends on `thermo-kernel` and `thermo-units` alone, so that the block server can use it. Not here: flags,
//! which each command declares itself, and the progress lines of monitoring, which only `thermo` has.

// `eprintln!` panics where standard error cannot be written: use `thermo_kernel::message!`.
#![cfg_attr(not(test), warn(clippy::print_stderr))]

pub mod activation;
pub mod exit;
pub mod interrupt;
pub mod output;
pub mod watchdog;
