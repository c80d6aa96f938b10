//! The order of runs: every repeat is a round in which each workload meets each configuration once, shuffled. A
//! configuration with repeats of its own is in the first rounds only.
//!
//! Where a configuration presses, the first round has the runs without pressure first: its limits follow from them.
//! CPU time drifts by a fifth between sessions on shared machines: only runs that are interleaved compare.

use thermo_engine::rng::Rng;

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
    (0..repeats)
        .flat_map(|repeat| round(experiment, repeat))
        .collect()
}

fn round(experiment: &Experiment, repeat: usize) -> Vec<Planned> {
    let mut runs: Vec<Planned> = (0..experiment.workloads.len())
        .flat_map(|workload| {
            (0..experiment.configurations.len()).map(move |configuration| Planned {
                repeat,
                workload,
                configuration,
            })
        })
        .collect();
    let mut rng = Rng::new(experiment.seed ^ (repeat as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Fisher and Yates.
    for at in (1..runs.len()).rev() {
        let with = usize::try_from(rng.below(at as u64 + 1)).unwrap_or(at);
        runs.swap(at, with);
    }
    // After shuffling: leaving some out must not change the order of the others.
    runs.retain(|run| {
        let most = experiment.configurations[run.configuration].repeats;
        most.is_none_or(|most| repeat < most)
    });
    // A pressure is a share of the peak without one, which has to be known by then.
    if repeat == 0 && experiment.presses() {
        runs.sort_by_key(|run| run.configuration != 0);
    }
    runs
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::experiment::Step;
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
    fn every_round_has_every_pair_once_in_an_order_of_its_own() {
        let experiment = experiment(1);
        let runs = order(&experiment, 3);
        let round = |nr: usize| -> Vec<(usize, usize)> {
            let of = runs.iter().filter(|run| run.repeat == nr);
            of.map(|run| (run.workload, run.configuration)).collect()
        };
        let pairs: Vec<(usize, usize)> = (0..5).flat_map(|w| [(w, 0), (w, 1)]).collect();
        for nr in 0..3 {
            let mut sorted = round(nr);
            sorted.sort_unstable();
            assert_eq!(sorted, pairs);
        }
        assert!(round(0) != round(1) && round(1) != round(2));
        assert!(runs.is_sorted_by_key(|run| run.repeat));
    }

    #[test]
    fn what_pressure_is_measured_by_comes_first() {
        let mut experiment = experiment(1);
        assert!(!order(&experiment, 1).is_sorted_by_key(|run| run.configuration));
        experiment.configurations[1].pressure = vec![Step {
            percent: 75,
            span: Nanos::secs(1),
        }];
        let runs = order(&experiment, 2);
        assert!(runs[..10].is_sorted_by_key(|run| run.configuration));
        assert!(!runs[10..].is_sorted_by_key(|run| run.configuration));
    }

    #[test]
    fn a_configuration_with_repeats_of_its_own_is_in_the_first_rounds_only() {
        let mut experiment = experiment(1);
        let all = order(&experiment, 3);
        experiment.configurations[0].repeats = Some(1);
        let fewer = order(&experiment, 3);
        let left: Vec<Planned> = all
            .into_iter()
            .filter(|run| run.configuration == 1 || run.repeat == 0)
            .collect();
        assert_eq!(fewer, left);
    }

    #[test]
    fn the_seed_gives_the_order_and_more_rounds_only_add() {
        assert_eq!(order(&experiment(7), 3), order(&experiment(7), 3));
        assert_ne!(order(&experiment(7), 3), order(&experiment(8), 3));
        assert_eq!(order(&experiment(7), 5)[..30], order(&experiment(7), 3));
    }
}
