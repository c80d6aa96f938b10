//! The life cycle experiment: switches between real applications in a cgroup with a memory limit, without (A)
//! and with (B) hints about every switch to `thermo lifecycle`.
//!
//! A seeded script decides which application comes to the foreground; it is the same for A and B of a repeat.
//! When memory pressure exceeds a threshold, the experiment kills the least recently used application, like
//! Android's lmkd. Thermocline itself never kills an application. Every run is saved as soon as it ends, and
//! an interrupted experiment resumes where it stopped.

mod app;
mod counters;
mod daemon;
mod low_memory_killer;
mod plan;
mod run_store;
mod session;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use plan::Plan;
pub use run_store::{Results, Run};

use thermo_engine::rng::Rng;

use crate::Error;
use crate::cgroup::Hierarchies;
use crate::swap::Swap;

/// An arm of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Arm {
    /// Without hints.
    A,
    /// With hints.
    B,
}

/// Options of a life cycle experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The results folder.
    pub results_dir: PathBuf,
    /// Number of repeats; as in the plan when `None`.
    pub repeats: Option<usize>,
    /// Switches in a run; as in the plan when `None`.
    pub switches: Option<usize>,
    /// Path of the `thermo` to measure.
    pub thermo: PathBuf,
    /// Set by the caller to abort the current run and end.
    pub stop: Arc<AtomicBool>,
}

/// Makes the missing runs. `progress` gets a line of text for each event.
///
/// # Errors
/// When swap or cgroups cannot be set up, or the folder holds the runs of another experiment. A failed run is
/// saved as failed.
pub fn run(plan: &Plan, options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Results, Error> {
    plan.check_programs()?;
    let hierarchies = Hierarchies::detect()?;
    let switches = options.switches.unwrap_or(plan.switches);
    let mut results = Results::open(&options.results_dir, &plan.text, switches)?;
    let repeats = options.repeats.unwrap_or(plan.repeats);
    let _swap = Swap::create(plan.zram)?;
    for repeat in 0..repeats {
        // The first arm changes the state of the machine for the second, so their order is random.
        let mut arms = [Arm::A, Arm::B];
        if Rng::new(plan.seed ^ (repeat as u64) << 32).below(2) == 0 {
            arms.reverse();
        }
        for arm in arms {
            if options.stop.load(Ordering::Relaxed) {
                return Ok(results);
            }
            if results.has_result(arm, repeat) {
                continue;
            }
            progress(&format!("repeat {} of {repeats}, {arm:?}", repeat + 1));
            let outcome = session::run_once(plan, options, &hierarchies, arm, repeat, switches);
            if options.stop.load(Ordering::Relaxed) {
                return Ok(results);
            }
            if let Err(error) = &outcome {
                progress(&format!("  failed: {error}"));
            }
            results.append(Run::new(arm, repeat, outcome))?;
        }
    }
    Ok(results)
}
