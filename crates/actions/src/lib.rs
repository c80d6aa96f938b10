//! Actions: what is done to the memory of processes, and what came of it.
//!
//! The [`Actor`] carries out what schemes ask for, [`hint`]s are one program's word on another's memory, [`page_cache`] sorts
//! files in memory, and [`preset`]s are the kernel's ready-made modules as schemes. Deliberately not here: which pages were
//! accessed (`thermo_backends`); an action that asks gets a `PageInspector`.

mod actor;
#[cfg(test)]
mod fake;
pub mod hint;
pub mod page_cache;
pub mod preset;

pub use actor::{Actor, HugeOptions, PageoutLimits, below_swap_floor};
