//! The order of runs. Each repeat runs every workload once under every configuration, in random order. A
//! configuration with its own number of repeats takes part in the first repeats only.
//!
//! With memory pressure, the first repeat begins with the runs of the first configuration: the limits depend
//! on their peak memory. Runs are interleaved because CPU time on shared machines drifts by a fifth between
//! sessions.

use thermo_engine::rng::Rng;

use crate::experiment::Experiment;

/// A run to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedRun {
    /// Repeat, from 0.
    pub repeat: usize,
    /// Index of the workload in the experiment.
    pub workload: usize,
    /// Index of the configuration in the experiment.
    pub configuration: usize,
}

/// All runs of `experiment` in order, for `repeats` repeats. The same seed gives the same order. More repeats
/// do not change the order of earlier ones.
#[must_use]
pub fn order(experiment: &Experiment, repeats: usize) -> Vec<PlannedRun> {
    (0..repeats)
        .flat_map(|repeat| order_of_repeat(experiment, repeat))
        .collect()
}

fn order_of_repeat(experiment: &Experiment, repeat: usize) -> Vec<PlannedRun> {
    let mut runs: Vec<PlannedRun> = (0..experiment.workloads.len())
        .flat_map(|workload| {
            (0..experiment.configurations.len()).map(move |configuration| PlannedRun {
                repeat,
                workload,
                configuration,
            })
        })
        .collect();
    let mut rng = Rng::new(experiment.seed ^ (repeat as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Fisher-Yates shuffle.
    for at in (1..runs.len()).rev() {
        let with = usize::try_from(rng.below(at as u64 + 1)).unwrap_or(at);
        runs.swap(at, with);
    }
    // Remove runs after shuffling, so that the order of the others does not change.
    runs.retain(|run| {
        let repeats = experiment.configurations[run.configuration].repeats;
        repeats.is_none_or(|repeats| repeat < repeats)
    });
    // Memory limits are shares of the peak under the first configuration, so its runs come first.
    if repeat == 0 && experiment.has_pressure() {
        runs.sort_by_key(|run| run.configuration != 0);
    }
    runs
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::experiment::PressureStep;
    use std::path::Path;
    use thermo_units::Nanos;

    fn experiment(seed: u64) -> Experiment {
        let workloads: String = (0..5)
            .map(|at| format!("[[workload]]\nname = \"w{at}\"\ncommand = [\"true\"]\n"))
            .collect();
        let configurations =
            "[[configuration]]\nname = \"orig\"\n[[configuration]]\nname = \"b\"\nattach = [\"x\"]\n";
        let text = format!("name = \"n\"\nrepeats = 3\nseed = {seed}\n{configurations}{workloads}");
        Experiment::parse(&text, Path::new(".")).unwrap()
    }

    #[test]
    fn each_repeat_shuffles_all_pairs_differently() {
        let experiment = experiment(1);
        let runs = order(&experiment, 3);
        let repeat = |nr: usize| -> Vec<(usize, usize)> {
            let of = runs.iter().filter(|run| run.repeat == nr);
            of.map(|run| (run.workload, run.configuration)).collect()
        };
        let pairs: Vec<(usize, usize)> = (0..5).flat_map(|w| [(w, 0), (w, 1)]).collect();
        for nr in 0..3 {
            let mut sorted = repeat(nr);
            sorted.sort_unstable();
            assert_eq!(sorted, pairs);
        }
        assert!(repeat(0) != repeat(1) && repeat(1) != repeat(2));
        assert!(runs.is_sorted_by_key(|run| run.repeat));
    }

    #[test]
    fn baseline_runs_come_before_pressure_runs() {
        let mut experiment = experiment(1);
        assert!(!order(&experiment, 1).is_sorted_by_key(|run| run.configuration));
        experiment.configurations[1].pressure = vec![PressureStep {
            percent: 75,
            span: Nanos::secs(1),
        }];
        let runs = order(&experiment, 2);
        assert!(runs[..10].is_sorted_by_key(|run| run.configuration));
        assert!(!runs[10..].is_sorted_by_key(|run| run.configuration));
    }

    #[test]
    fn configuration_repeats_limit_it_to_first_repeats() {
        let mut experiment = experiment(1);
        let all = order(&experiment, 3);
        experiment.configurations[0].repeats = Some(1);
        let fewer = order(&experiment, 3);
        let expected: Vec<PlannedRun> = all
            .into_iter()
            .filter(|run| run.configuration == 1 || run.repeat == 0)
            .collect();
        assert_eq!(fewer, expected);
    }

    #[test]
    fn seed_fixes_order_for_any_number_of_repeats() {
        assert_eq!(order(&experiment(7), 3), order(&experiment(7), 3));
        assert_ne!(order(&experiment(7), 3), order(&experiment(8), 3));
        assert_eq!(order(&experiment(7), 5)[..30], order(&experiment(7), 3));
    }
}
