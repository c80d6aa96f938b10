//! Compares two ways to do the same work. They run alternately, so that other load on the machine affects
//! both, and the ratio is computed for each round.
//!
//! Times are CPU times of the measuring thread, which does all the work. Other load is not counted.
#![allow(dead_code, reason = "each bench uses a part of it")]

use thermo_kernel::clock;

/// Prints the column heads of [`Pair::print`].
pub fn print_head(what: &str) {
    println!(
        "\n{what:<44} {:>12} {:>12} {:>7} {:>15}",
        "ours", "raw", "ratio", "quartiles"
    );
}

/// True if the measurement `name` is selected: if no words follow `--`, or if one of these words is a part of
/// `name`.
pub fn is_selected(name: &str) -> bool {
    let mut words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .peekable();
    words.peek().is_none() || words.any(|word| name.contains(&word))
}

/// CPU time of `work` in nanoseconds.
pub fn time(work: impl FnOnce()) -> f64 {
    let began = clock::thread_cpu();
    work();
    clock::thread_cpu().saturating_sub(began).0 as f64
}

/// The times of both ways, one pair per round.
#[derive(Debug, Default)]
pub struct Pair {
    ours: Vec<f64>,
    raw: Vec<f64>,
}

/// One of the two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Through the crates of this project.
    Ours,
    /// Bare system calls.
    Raw,
}

impl Pair {
    /// Measures `rounds` pairs. `run` does the work once and returns the time in nanoseconds. The order
    /// alternates from round to round.
    pub fn measure(rounds: usize, mut run: impl FnMut(Method) -> f64) -> Self {
        let mut pair = Self::default();
        for round in 0..rounds {
            let order = if round % 2 == 0 {
                [Method::Ours, Method::Raw]
            } else {
                [Method::Raw, Method::Ours]
            };
            for method in order {
                let time = run(method);
                match method {
                    Method::Ours => pair.ours.push(time),
                    Method::Raw => pair.raw.push(time),
                }
            }
        }
        pair
    }

    /// Prints one line: both medians, divided by `per`, in `unit`; and the ratio ours / raw, or with
    /// `as_throughput` raw / ours.
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

    /// Prints rates instead of times: `amount` divided by each time.
    pub fn print_rates(&self, name: &str, amount: f64, unit: &str) {
        let rates = |times: &[f64]| -> Vec<f64> { times.iter().map(|time| amount / time).collect() };
        let inverse = Self {
            ours: rates(&self.ours),
            raw: rates(&self.raw),
        };
        inverse.print(name, 1.0, unit, false);
    }
}

/// The quantile `at` (0 to 1) of `values`, without interpolation.
pub fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1) as f64;
    sorted
        .get((last * at).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}
