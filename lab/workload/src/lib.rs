//! Workloads: memory accesses of a known pattern, made for real, so that trackers can be judged.
//!
//! A [`Config`] is read from text in masim's format: regions of memory, then phases, each with the patterns
//! by which the regions are accessed. [`run`] maps the regions and makes the accesses in the calling thread;
//! on the way it tells the [`Truth`]: which byte ranges were touched in which span of time.
//!
//! All `unsafe` is in `memory.rs`.

mod config;
mod memory;
mod options;
mod parse;
mod run;
mod touched;
mod truth;

pub use config::{Config, Pattern, Phase, RegionSpec};
pub use options::{HintMethod, Mode, Options};
pub use run::{RunError, Summary, run, run_to};
pub use truth::{Truth, TruthWriter};
