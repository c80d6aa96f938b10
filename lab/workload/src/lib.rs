//! Synthetic workloads: access memory in a known pattern, to measure the accuracy of access monitoring.
//!
//! A [`Config`] is parsed from text in masim's format: memory regions, then phases, each with its access
//! patterns. [`run`] maps the regions and accesses them in the calling thread. It reports the ground truth as
//! [`Truth`] records: which byte ranges were accessed in which span of time.
//!
//! All `unsafe` is in `memory.rs`.

mod accessed_pages;
mod config;
mod memory;
mod options;
mod parse;
mod run;
mod truth;

pub use config::{Config, Pattern, Phase, RegionSpec};
pub use options::{HintMethod, Mode, Options};
pub use run::{RunError, Summary, run, run_to};
pub use truth::{Truth, TruthWriter};
