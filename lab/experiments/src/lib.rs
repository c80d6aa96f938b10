//! Experiments: run workloads under several configurations, repeatedly, and print tables of the results.
//!
//! An [`Experiment`] is read from a file. [`run()`] makes its runs one after the other in random order, each
//! in its own control group, and saves every run in a folder as soon as it ends. [`Results`] are read from
//! such a folder and printed as text, JSON, CSV or an HTML page with plots.
//!
//! Measurements cover the workload's control group, not the machine: see [`cgroup`]. Everything that an
//! experiment sets up (swap, control groups, programs) is a value whose `Drop` undoes it, also after a
//! failure. Signals are handled by the caller: it sets [`Options::stop`], and `run` ends cleanly.
//!
//! This crate does not choose what to attach to a workload (the experiment file does), and kills only
//! processes that it started.

pub mod cgroup;
mod csv;
mod error;
pub mod experiment;
pub mod forecast;
mod html;
mod huge_pages;
mod json;
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
mod run_store;
mod runner;
mod sample;
pub mod squeeze;
pub mod stats;
mod swap;
mod table;
mod text;
mod warm;

pub use error::{Error, RunFailure};
pub use experiment::Experiment;
pub use huge_pages::summary as huge_page_summary;
pub use needs::Need;
pub use results::{Cell, Head, Host, Results, Run};
pub use runner::{Options, Progress, run};
