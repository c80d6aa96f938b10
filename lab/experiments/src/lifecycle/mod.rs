//! The experiment of the life cycle: real applications that are started and switched among in a limited group, with
//! (B) and without (A) `thermo lifecycle` being told of every switch.
//!
//! A seeded script says who comes to the front when, the same for A and B of a round. What was pushed out by others
//! is killed by rank when pressure passes a threshold, as Android's lmkd does: a fixture of the experiment; the
//! product kills nobody. Every run is kept as soon as it ends, and an interrupted experiment goes on where it was.

mod app;
mod counters;
mod daemon;
mod fixture;
mod plan;
mod run_store;
mod session;
mod show;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use plan::Plan;
pub use run_store::{Kept, Results};

use thermo_engine::rng::Rng;

use crate::Error;
use crate::group::Hierarchies;
use crate::swap::Swap;

/// With or without hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Arm {
    /// Without.
    A,
    /// With.
    B,
}

/// How an experiment is run.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// The folder runs are kept in.
    pub results_dir: PathBuf,
    /// Repeats, other than the plan's own number.
    pub repeats: Option<usize>,
    /// Switches a run, other than the plan's own number.
    pub switches: Option<usize>,
    /// The command that is tried.
    pub thermo: PathBuf,
    /// Set from outside to end after the run under way was given up.
    pub stop: Arc<AtomicBool>,
}

/// Makes the runs that are not there yet.
///
/// # Errors
/// The machine cannot be prepared, or the folder holds another experiment's runs. A run that fails is kept as failed.
pub fn run(plan: &Plan, conditions: &Conditions, tell: &mut dyn FnMut(&str)) -> Result<Results, Error> {
    plan.check_programs()?;
    let hierarchies = Hierarchies::of_this_host()?;
    let switches = conditions.switches.unwrap_or(plan.switches);
    let mut results = Results::open(&conditions.results_dir, &plan.text, switches)?;
    let repeats = conditions.repeats.unwrap_or(plan.repeats);
    let _swap = Swap::make(plan.zram)?;
    for repeat in 0..repeats {
        // Whoever comes first finds another machine than who comes second: they take turns by chance.
        let mut arms = [Arm::A, Arm::B];
        if Rng::new(plan.seed ^ (repeat as u64) << 32).below(2) == 0 {
            arms.reverse();
        }
        for arm in arms {
            if conditions.stop.load(Ordering::Relaxed) {
                return Ok(results);
            }
            if results.has(arm, repeat) {
                continue;
            }
            tell(&format!("round {} of {repeats}, {arm:?}", repeat + 1));
            let made = session::once(plan, conditions, &hierarchies, arm, repeat, switches);
            if conditions.stop.load(Ordering::Relaxed) {
                return Ok(results);
            }
            if let Err(why) = &made {
                tell(&format!("  failed: {why}"));
            }
            results.keep(Kept::of(arm, repeat, made))?;
        }
    }
    Ok(results)
}
