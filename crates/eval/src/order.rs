//! The order of runs: every repeat is a round in which each workload meets each configuration once, shuffled.
//!
//! CPU time drifts by a fifth between sessions on shared machines: only runs that are interleaved compare.

use thermo_core::rng::Rng;

use crate::experiment::Experiment;

/// One run to be made, by place in the experiment's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Planned {
    /// The round, from 0.
    pub repeat: usize,
    /// Which workload.
    pub workload: usize,
    /// Which configuration.
    pub configuration: usize,
}

/// All runs of `experiment` in their order, `repeats` rounds. The same seed gives the same order, and more
/// rounds leave the earlier ones as they were.
#[must_use]
pub fn order(experiment: &Experiment, repeats: usize) -> Vec<Planned> {
    (0..repeats).flat_map(|repeat| round(experiment, repeat)).collect()
}

fn round(experiment: &Experiment, repeat: usize) -> Vec<Planned> {
    let mut runs: Vec<Planned> = (0..experiment.workloads.len())
        .flat_map(|workload| {
            (0..experiment.configurations.len())
                .map(move |configuration| Planned { repeat, workload, configuration })
        })
        .collect();
    let mut rng = Rng::new(experiment.seed ^ (repeat as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Fisher and Yates.
    for at in (1..runs.len()).rev() {
        let with = usize::try_from(rng.below(at as u64 + 1)).unwrap_or(at);
        runs.swap(at, with);
    }
    runs
}
