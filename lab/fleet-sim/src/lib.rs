//! A simulated fleet: files as the agents of many machines would write them, and the truth of each.
//!
//! The engine is the real one: each target has a [`Context`](thermo_engine::Context) that scans its memory,
//! derives idle ages and re-accesses, and applies schemes. Only the memory is simulated (`machine`,
//! `memory`): 512 pages a target, each of which stands for many real pages, and whose accesses follow the
//! patterns of twelve job classes (`class`, `pattern`). The simulator knows the last access to each page, so
//! it counts true idle ages without the engine.
//!
//! Everything is a function of the options. Host number n depends on the seed and n only: a small fleet is
//! the beginning of a larger one with the same seed.
//!
//! * `target`: one target over time, and its rows.
//! * `host`: the targets of a host, and its files.
//! * `fleet`: all hosts, on all CPUs.
//! * `truth`: the sums that `truth.json` holds.

mod ages;
mod anchor;
mod class;
mod error;
mod fleet;
mod host;
mod machine;
mod memory;
mod pattern;
mod random;
mod target;
mod truth;

pub use ages::{Ages, read_ages};
pub use anchor::{Anchor, AnchorBand};
pub use error::Error;
pub use fleet::{Options, START_MS, simulate};
pub use truth::{BoundTruth, ClassBound, ClassTruth, ClusterTruth, HostHours, Truth};
