//! Summarises huge page results in sentences: "removes X % of thp's memory overhead while preserving Y % of
//! its speed-up".

use crate::metric::{self, Metric};
use crate::results::Results;

/// The configuration with huge pages everywhere, which the others are compared to.
const THP: &str = "thp";
/// Workloads that `thp` speeds up by more than this are also summarised separately, in percent.
const MIN_SPEED_UP_PERCENT: f64 = 10.0;

/// Means of one workload, or sums over several, under three configurations: `orig`, `thp` and a third.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Means {
    memory: [f64; 3],
    runtime: [f64; 3],
}

impl Means {
    /// The change of the third value from `orig`, in percent of the change of `thp` from `orig`.
    fn preserved_percent([orig, thp, third]: [f64; 3]) -> Option<f64> {
        let change = thp - orig;
        (change.abs() > f64::EPSILON * orig.abs()).then(|| (third - orig) / change * 100.0)
    }

    /// By how many percent `thp` lies above `orig`.
    fn overhead_percent([orig, thp, _]: [f64; 3]) -> f64 {
        (thp / orig - 1.0) * 100.0
    }

    fn speed_up_percent(&self) -> f64 {
        -Self::overhead_percent(self.runtime)
    }

    fn plus(mut self, other: &Self) -> Self {
        for n in 0..3 {
            self.memory[n] += other.memory[n];
            self.runtime[n] += other.runtime[n];
        }
        self
    }
}

/// The summary of every configuration except `orig` and `thp`. Empty when no configuration is called `thp`.
#[must_use]
pub fn summary(results: &Results) -> String {
    let configurations = &results.head.configurations;
    if !configurations.iter().any(|name| name == THP) {
        return String::new();
    }
    let others = configurations
        .iter()
        .filter(|name| *name != THP && *name != results.orig());
    others.filter_map(|name| summary_of(results, name)).collect()
}

fn summary_of(results: &Results, configuration: &str) -> Option<String> {
    let metrics = metric::all([]);
    let find = |key: &str| metrics.iter().find(|metric| metric.key == key);
    let (memory, runtime) = (find(metric::MEMUSED_AVG)?, find(metric::RUNTIME)?);
    let all: Vec<(&str, Means)> = results
        .head
        .workloads
        .iter()
        .filter_map(|workload| {
            let memory = means(results, memory, workload, configuration)?;
            let runtime = means(results, runtime, workload, configuration)?;
            Some((workload.as_str(), Means { memory, runtime }))
        })
        .collect();
    let sum = |workloads: &[(&str, Means)]| {
        workloads
            .iter()
            .map(|(_, means)| *means)
            .reduce(|sum, means| sum.plus(&means))
    };
    let mut text = format!("\n{configuration}: {}\n", sentence("in total", &sum(&all)?));
    let faster: Vec<(&str, Means)> = all
        .iter()
        .filter(|(_, means)| means.speed_up_percent() > MIN_SPEED_UP_PERCENT)
        .copied()
        .collect();
    if let Some(sum) = sum(&faster) {
        let names: Vec<&str> = faster.iter().map(|(name, _)| *name).collect();
        let subject = format!(
            "for the {} workloads that thp makes more than 10 % faster ({})",
            faster.len(),
            names.join(", ")
        );
        text.push_str(&format!("{configuration}: {}\n", sentence(&subject, &sum)));
    }
    text.push_str(&best_and_worst(configuration, &all));
    text.push_str(&cpu_cost(results, configuration, &all));
    Some(text)
}

/// Run time saved against `orig`, compared with the CPU time of thermo. Empty unless that CPU time was
/// measured for every workload.
fn cpu_cost(results: &Results, configuration: &str, all: &[(&str, Means)]) -> String {
    let metrics = metric::all([]);
    let Some(cpu) = metrics.iter().find(|metric| metric.key == metric::THERMO_CPU) else {
        return String::new();
    };
    let seconds = |(workload, means): &(&str, Means)| {
        let percent = results.cell(cpu, workload, configuration)?.summary.mean;
        Some(percent / 100.0 * means.runtime[2])
    };
    let Some(spent) = all
        .iter()
        .map(seconds)
        .sum::<Option<f64>>()
        .filter(|spent| *spent > 0.0)
    else {
        return String::new();
    };
    let saved: f64 = all
        .iter()
        .map(|(_, means)| means.runtime[0] - means.runtime[2])
        .sum();
    format!(
        "{configuration}: over all workloads, thermo uses {spent:.1} s of CPU time and the run time is {saved:.1} s less \
         than {}: {:.1} s saved for each second spent\n",
        results.orig(),
        saved / spent
    )
}

/// The means of a metric under `orig`, `thp` and `configuration`. `None` when one has no successful run.
fn means(results: &Results, metric: &Metric, workload: &str, configuration: &str) -> Option<[f64; 3]> {
    let mean = |with: &str| results.cell(metric, workload, with).map(|cell| cell.summary.mean);
    Some([mean(results.orig())?, mean(THP)?, mean(configuration)?])
}

fn sentence(subject: &str, means: &Means) -> String {
    let overhead = Means::overhead_percent(means.memory);
    let removed = match Means::preserved_percent(means.memory) {
        Some(preserved) if overhead > 0.0 => format!(
            "removes {:.2} % of thp's memory overhead ({overhead:+.2} %)",
            100.0 - preserved
        ),
        _ => format!("finds no memory overhead of thp to remove ({overhead:+.2} %)"),
    };
    let speed_up = means.speed_up_percent();
    let preserved = match Means::preserved_percent(means.runtime) {
        Some(preserved) if speed_up > 0.0 => {
            format!("preserving {preserved:.2} % of its speed-up ({speed_up:.2} %)")
        }
        _ => format!("there is no speed-up of thp to preserve ({speed_up:.2} %)"),
    };
    format!("{subject}, it {removed} while {preserved}")
}

/// The largest and the smallest share of thp's speed-up that is preserved, among workloads that thp speeds up
/// by at least 1 %.
fn best_and_worst(configuration: &str, all: &[(&str, Means)]) -> String {
    let mut preserved: Vec<(&str, f64)> = all
        .iter()
        .filter(|(_, means)| means.speed_up_percent() >= 1.0)
        .filter_map(|(name, means)| Some((*name, Means::preserved_percent(means.runtime)?)))
        .collect();
    preserved.sort_by(|a, b| a.1.total_cmp(&b.1));
    match (preserved.last(), preserved.first()) {
        (Some((best, most)), Some((worst, least))) => format!(
            "{configuration}: in the best case ({best}) it preserves {most:.2} % of the speed-up, in the worst ({worst}) {least:.2} %\n"
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::results::{Head, Host, Run};

    fn results(rows: &[(&str, [f64; 3], [f64; 3])]) -> Results {
        let names = ["orig", "thp", "ethp"];
        let run = |workload: &str, with: usize, memory: f64, runtime: f64| Run {
            workload: workload.to_owned(),
            configuration: names[with].to_owned(),
            repeat: 0,
            started_s: 0,
            warmed_bytes: 0,
            failure: None,
            measured: [
                (metric::MEMUSED_AVG.to_owned(), memory),
                (metric::RUNTIME.to_owned(), runtime),
            ]
            .into(),
            samples: Vec::new(),
        };
        Results {
            head: Head {
                schema: 1,
                experiment: "ethp".into(),
                hash: String::new(),
                workloads: rows.iter().map(|(name, ..)| (*name).to_owned()).collect(),
                configurations: names.map(str::to_owned).to_vec(),
                against: Default::default(),
                host: Host::default(),
            },
            runs: rows
                .iter()
                .flat_map(|(name, memory, runtime)| (0..3).map(|n| run(name, n, memory[n], runtime[n])))
                .collect(),
        }
    }

    #[test]
    fn totals_of_the_patch_give_its_sentence() {
        let text = summary(&results(&[(
            "all",
            [40_083_800.0, 42_939_900.0, 40_150_600.0],
            [2984.53, 2854.22, 2951.54],
        )]));
        // The patch rounds the percentages before dividing and reports 97.61 and 25.40.
        assert!(
            text.contains("removes 97.66 % of thp's memory overhead (+7.13 %)"),
            "{text}"
        );
        assert!(
            text.contains("preserving 25.32 % of its speed-up (4.37 %)"),
            "{text}"
        );
    }

    #[test]
    fn faster_workloads_are_summarised_separately() {
        let text = summary(&results(&[
            ("fft", [9.0, 9.0, 9.0], [32.857, 22.960, 25.808]),
            ("ocean_ncp", [3.9, 7.07, 4.4], [80.710, 51.831, 71.498]),
            ("radix", [1.7, 1.4, 1.4], [30.875, 25.226, 25.882]),
            ("volrend", [0.15, 0.15, 0.16], [86.796, 86.347, 88.223]),
        ]));
        assert!(
            text.contains("for the 3 workloads that thp makes more than 10 % faster (fft, ocean_ncp, radix)"),
            "{text}"
        );
        assert!(
            text.contains("preserving 47.84 % of its speed-up (30.76 %)"),
            "{text}"
        );
        assert!(
            text.contains("in the best case (radix) it preserves 88.39 %"),
            "{text}"
        );
        assert!(text.contains("in the worst (ocean_ncp) 31.90 %"), "{text}");
    }

    #[test]
    fn summary_compares_saved_and_spent_time() {
        let mut results = results(&[("fft", [9.0; 3], [40.0, 20.0, 25.0]), ("lu", [9.0; 3], [10.0; 3])]);
        assert!(!summary(&results).contains("for each second spent"));
        for run in results.runs.iter_mut().filter(|run| run.configuration == "ethp") {
            run.measured.insert(metric::THERMO_CPU.to_owned(), 8.0);
        }
        let text = summary(&results);
        // 8 % of 25 s and of 10 s.
        assert!(
            text.contains(
                "thermo uses 2.8 s of CPU time and the run time is 15.0 s less than orig: 5.4 s saved for each"
            ),
            "{text}"
        );
    }

    #[test]
    fn summary_claims_nothing_without_thp_effect() {
        let text = summary(&results(&[("same", [5.0, 5.0, 5.0], [3.0, 3.0, 3.0])]));
        assert!(
            text.contains("no memory overhead") && text.contains("no speed-up"),
            "{text}"
        );
        let mut other = results(&[]);
        other.head.configurations = vec!["orig".into(), "reclaim".into()];
        assert_eq!(summary(&other), "");
    }
}
