//! Measuring two ways to do the same thing side by side: rounds in turns, so that whatever else the machine does
//! falls on both, and the ratio of each round by itself.
//!
//! Times are CPU times of the measuring thread: all the work is done in it, in system calls or outside, and what
//! others take of the machine meanwhile is not counted.
#![allow(dead_code, reason = "each bench uses a part of it")]

use thermo_kernel::clock;

/// Prints what the columns of [`Pair::print`] are.
pub fn print_head(what: &str) {
    println!(
        "\n{what:<44} {:>12} {:>12} {:>7} {:>15}",
        "ours", "raw", "ratio", "quartiles"
    );
}

/// Whether something of this name is to be measured: all is, unless words after `--` say what, each a part of names.
pub fn is_asked_for(name: &str) -> bool {
    let mut words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .peekable();
    words.peek().is_none() || words.any(|word| name.contains(&word))
}

/// How much CPU time `work` took, in nanoseconds.
pub fn time(work: impl FnOnce()) -> f64 {
    let began = clock::thread_cpu();
    work();
    clock::thread_cpu().saturating_sub(began).0 as f64
}

/// The times of one thing done in two ways, a pair a round.
#[derive(Debug, Default)]
pub struct Pair {
    ours: Vec<f64>,
    raw: Vec<f64>,
}

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Through this project.
    Ours,
    /// By bare system calls.
    Raw,
}

impl Pair {
    /// Measures `rounds` pairs. `run` does it once and returns the nanoseconds that count. Each way goes first in
    /// every other round.
    pub fn measure(rounds: usize, mut run: impl FnMut(Method) -> f64) -> Self {
        let mut pair = Self::default();
        for round in 0..rounds {
            let order = if round % 2 == 0 {
                [Method::Ours, Method::Raw]
            } else {
                [Method::Raw, Method::Ours]
            };
            for way in order {
                let took = run(way);
                match way {
                    Method::Ours => pair.ours.push(took),
                    Method::Raw => pair.raw.push(took),
                }
            }
        }
        pair
    }

    /// One line: both medians, each divided by `per` and in `unit`, and the ratio ours / raw, or raw / ours where
    /// `as_throughput`.
    pub fn print(&self, name: &str, per: f64, unit: &str, as_throughput: bool) {
        let ratios = self.ours.iter().zip(&self.raw);
        let ratios: Vec<f64> = ratios
            .map(|(ours, raw)| if as_throughput { raw / ours } else { ours / raw })
            .collect();
        println!(
            "{name:<44} {:>12} {:>12} {:>7.3} {:>15}",
            format!("{:.3} {unit}", quantile(&self.ours, 0.5) / per),
            format!("{:.3} {unit}", quantile(&self.raw, 0.5) / per),
            quantile(&ratios, 0.5),
            format!("{:.3}..{:.3}", quantile(&ratios, 0.25), quantile(&ratios, 0.75)),
        );
    }
}

impl Pair {
    /// The same as throughput: `what` divided by each time.
    pub fn print_rates(&self, name: &str, what: f64, unit: &str) {
        let rates = |times: &[f64]| -> Vec<f64> { times.iter().map(|time| what / time).collect() };
        let inverse = Self {
            ours: rates(&self.ours),
            raw: rates(&self.raw),
        };
        inverse.print(name, 1.0, unit, false);
    }
}

/// The value below which a share `at` of `values` lies, without interpolation.
pub fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1) as f64;
    sorted
        .get((last * at).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}
