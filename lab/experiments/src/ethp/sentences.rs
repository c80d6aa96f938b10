//! What the tables come down to: "removes X % of thp's memory overhead while preserving Y % of its speed-up".

use crate::metric::{self, Metric};
use crate::results::Results;

/// The configuration that is measured against.
const THP: &str = "thp";
/// Workloads that gain so many percent from huge pages are summed up once more.
const GAINS: f64 = 10.0;

/// One workload, or the sum of some, under `orig`, `thp` and the configuration in question.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Three {
    memory: [f64; 3],
    runtime: [f64; 3],
}

impl Three {
    /// How many percent of thp's change from orig the third has.
    fn kept(of: [f64; 3]) -> Option<f64> {
        let [orig, thp, ours] = of;
        let change = thp - orig;
        (change.abs() > f64::EPSILON * orig.abs()).then(|| (ours - orig) / change * 100.0)
    }

    fn overhead_percent(of: [f64; 3]) -> f64 {
        (of[1] / of[0] - 1.0) * 100.0
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

/// The sentences for every configuration besides `orig` and `thp`; empty where there is nothing called `thp`.
#[must_use]
pub fn sentences(results: &Results) -> String {
    let configurations = &results.head.configurations;
    if !configurations.iter().any(|name| name == THP) {
        return String::new();
    }
    let others = configurations
        .iter()
        .filter(|name| *name != THP && *name != results.orig());
    others
        .filter_map(|name| of_configuration(results, name))
        .collect()
}

fn of_configuration(results: &Results, ours: &str) -> Option<String> {
    let metrics = metric::all([]);
    let find = |key: &str| metrics.iter().find(|metric| metric.key == key);
    let (memory, runtime) = (find(metric::MEMUSED_AVG)?, find(metric::RUNTIME)?);
    let all: Vec<(&str, Three)> = results
        .head
        .workloads
        .iter()
        .filter_map(|workload| {
            let memory = three(results, memory, workload, ours)?;
            let runtime = three(results, runtime, workload, ours)?;
            Some((workload.as_str(), Three { memory, runtime }))
        })
        .collect();
    let sum = |of: &[(&str, Three)]| {
        of.iter()
            .map(|(_, three)| *three)
            .reduce(|sum, three| sum.plus(&three))
    };
    let mut text = format!("\n{ours}: {}\n", sentence("in total", &sum(&all)?));
    let gain: Vec<(&str, Three)> = all
        .iter()
        .filter(|(_, three)| three.speed_up_percent() > GAINS)
        .copied()
        .collect();
    if let Some(sum) = sum(&gain) {
        let names: Vec<&str> = gain.iter().map(|(name, _)| *name).collect();
        let which = format!(
            "for the {} that thp makes more than 10 % faster ({})",
            gain.len(),
            names.join(", ")
        );
        text.push_str(&format!("{ours}: {}\n", sentence(&which, &sum)));
    }
    text.push_str(&best_and_worst(ours, &all));
    text.push_str(&what_it_took(results, ours, &all));
    Some(text)
}

/// What was spent for what was saved: run time against orig, beside the CPU time of thermo. Empty where that was not
/// measured for every workload.
fn what_it_took(results: &Results, ours: &str, all: &[(&str, Three)]) -> String {
    let metrics = metric::all([]);
    let Some(cpu) = metrics.iter().find(|metric| metric.key == metric::OUR_CPU) else {
        return String::new();
    };
    let seconds = |(workload, three): &(&str, Three)| {
        let percent = results.cell(cpu, workload, ours)?.summary.mean;
        Some(percent / 100.0 * three.runtime[2])
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
        .map(|(_, three)| three.runtime[0] - three.runtime[2])
        .sum();
    format!(
        "{ours}: a run of all takes {spent:.1} s of CPU time of thermo's, and {saved:.1} s less run time than {}: {:.1} s for \
         each second spent\n",
        results.orig(),
        saved / spent
    )
}

/// The means of a metric under the three; nothing when one of them has no good run.
fn three(results: &Results, metric: &Metric, workload: &str, ours: &str) -> Option<[f64; 3]> {
    let mean = |with: &str| results.cell(metric, workload, with).map(|cell| cell.summary.mean);
    Some([mean(results.orig())?, mean(THP)?, mean(ours)?])
}

fn sentence(which: &str, of: &Three) -> String {
    let overhead = Three::overhead_percent(of.memory);
    let removed = match Three::kept(of.memory) {
        Some(kept) if overhead > 0.0 => format!(
            "removes {:.2} % of thp's memory overhead ({overhead:+.2} %)",
            100.0 - kept
        ),
        _ => format!("finds no memory overhead of thp to remove ({overhead:+.2} %)"),
    };
    let speed_up = of.speed_up_percent();
    let preserved = match Three::kept(of.runtime) {
        Some(kept) if speed_up > 0.0 => format!("preserving {kept:.2} % of its speed-up ({speed_up:.2} %)"),
        _ => format!("there is no speed-up of thp to preserve ({speed_up:.2} %)"),
    };
    format!("{which}, it {removed} while {preserved}")
}

/// The workloads of which most and least of thp's speed-up is kept, among those it makes faster by a percent or more.
fn best_and_worst(ours: &str, all: &[(&str, Three)]) -> String {
    let mut kept: Vec<(&str, f64)> = all
        .iter()
        .filter(|(_, three)| three.speed_up_percent() >= 1.0)
        .filter_map(|(name, three)| Some((*name, Three::kept(three.runtime)?)))
        .collect();
    kept.sort_by(|a, b| a.1.total_cmp(&b.1));
    match (kept.last(), kept.first()) {
        (Some((best, most)), Some((worst, least))) => format!(
            "{ours}: in the best case ({best}) it preserves {most:.2} % of the speed-up, in the worst ({worst}) {least:.2} %\n"
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
    fn the_seeds_totals_give_the_seeds_sentence() {
        let text = sentences(&results(&[(
            "all",
            [40_083_800.0, 42_939_900.0, 40_150_600.0],
            [2984.53, 2854.22, 2951.54],
        )]));
        // The patch rounds the percentages before it divides: 97.61 and 25.40.
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
    fn the_seeds_fast_workloads_are_summed_up_apart() {
        let text = sentences(&results(&[
            ("fft", [9.0, 9.0, 9.0], [32.857, 22.960, 25.808]),
            ("ocean_ncp", [3.9, 7.07, 4.4], [80.710, 51.831, 71.498]),
            ("radix", [1.7, 1.4, 1.4], [30.875, 25.226, 25.882]),
            ("volrend", [0.15, 0.15, 0.16], [86.796, 86.347, 88.223]),
        ]));
        assert!(
            text.contains("for the 3 that thp makes more than 10 % faster (fft, ocean_ncp, radix)"),
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
    fn what_is_saved_stands_beside_what_is_spent() {
        let mut some = results(&[("fft", [9.0; 3], [40.0, 20.0, 25.0]), ("lu", [9.0; 3], [10.0; 3])]);
        assert!(!sentences(&some).contains("for each second spent"));
        for run in some.runs.iter_mut().filter(|run| run.configuration == "ethp") {
            run.measured.insert(metric::OUR_CPU.to_owned(), 8.0);
        }
        let text = sentences(&some);
        // 8 % of 25 s and of 10 s.
        assert!(
            text.contains(
                "takes 2.8 s of CPU time of thermo's, and 15.0 s less run time than orig: 5.4 s for each"
            ),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_claimed_where_thp_changes_nothing() {
        let text = sentences(&results(&[("same", [5.0, 5.0, 5.0], [3.0, 3.0, 3.0])]));
        assert!(
            text.contains("no memory overhead") && text.contains("no speed-up"),
            "{text}"
        );
        let mut other = results(&[]);
        other.head.configurations = vec!["orig".into(), "reclaim".into()];
        assert_eq!(sentences(&other), "");
    }
}
