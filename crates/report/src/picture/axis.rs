//! Positions and labels of axis ticks.

use thermo_units::{Bytes, Nanos};

/// About `count` round values from 0 to `end` seconds.
pub(crate) fn ticks(end: f64, count: usize) -> Vec<f64> {
    const STEPS: [f64; 30] = [
        1e-6, 1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
        60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 21_600.0, 43_200.0, 86_400.0,
    ];
    let min_step = end / count.max(1) as f64;
    let step = STEPS
        .into_iter()
        .find(|step| *step >= min_step)
        .unwrap_or(86_400.0 * (min_step / 86_400.0).ceil());
    steps(step, end)
}

/// About `count` round byte counts from 0 to `end`; the step is a power of two.
pub(crate) fn byte_ticks(end: f64, count: usize) -> Vec<f64> {
    let min_step = (end / count.max(1) as f64).max(1.0);
    let step = 2_f64.powf(min_step.log2().ceil());
    steps(step, end)
}

fn steps(step: f64, end: f64) -> Vec<f64> {
    // Ticks are multiples of the step, so that rounding errors do not add up. The count is bounded at 1000.
    (0..1000)
        .map(|n| f64::from(n) * step)
        .take_while(|tick| *tick <= end * 1.000_001)
        .collect()
}

/// `0 s`, `500 ms`, `10 s`, `1 m 30 s`.
pub(crate) fn seconds(seconds: f64) -> String {
    let ns = Nanos((seconds * 1e9).round() as u64);
    ns.to_string().replace(".00 ", " ").replace(".0 ", " ")
}

/// `0 B`, `64 MiB`.
pub(crate) fn bytes(bytes: f64) -> String {
    Bytes(bytes.round() as u64)
        .to_string()
        .replace(".00 ", " ")
        .replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_bounded() {
        assert_eq!(ticks(30.0, 4), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(
            ticks(0.35, 5),
            [0.0, 0.1, 0.2, 0.3_f64].map(|t| (t * 10.0).round() * 0.1)
        );
        assert!(ticks(1e9, 5).len() <= 6);
        assert_eq!(byte_ticks(100.0, 4), [0.0, 32.0, 64.0, 96.0]);
        assert_eq!(
            [seconds(0.0), seconds(10.0), seconds(0.5), seconds(90.0)],
            ["0 s", "10 s", "500 ms", "90 s"]
        );
        assert_eq!(bytes(67_108_864.0), "64 MiB");
    }
}
