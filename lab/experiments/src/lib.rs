//! Experiments: workloads × configurations × repeats → tables.
//!
//! An [`Experiment`] is read from a file, [`run()`] makes its runs one after the other in random order, each in a
//! control group of its own, and keeps every one in a folder as soon as it ends; [`Results`] are read from such a
//! folder and shown as text, JSON, CSV or a page with pictures.
//!
//! What is measured is the workload's group, not the machine: see [`group`]. Whatever is switched on for an
//! experiment (swap, groups, programs) is a value that undoes it when it is dropped, on failure too. Signals are
//! the caller's: it sets [`Options::stop`], and `run` ends cleanly.
//!
//! Deliberately not here: deciding what to attach (the experiment file says it) and killing what is not ours.

mod csv;
mod error;
mod ethp;
pub mod experiment;
pub mod group;
mod html;
mod json;
mod ledger;
pub mod lifecycle;
pub mod metric;
pub mod monitor;
mod needs;
pub mod order;
pub mod placeholder;
mod plot;
mod pressure;
mod process;
mod ratios;
mod results;
mod run;
mod runner;
mod sample;
pub mod squeeze;
pub mod stats;
mod swap;
mod table;
mod text;
mod warm;

pub use error::{Error, RunFailure};
pub use ethp::sentences as ethp_sentences;
pub use experiment::Experiment;
pub use needs::Need;
pub use results::{Cell, Head, Host, Results, Run};
pub use runner::{Options, Progress, run};
