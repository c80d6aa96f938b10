//! What repeated runs say: mean, spread, and whether a difference is more than chance.
//!
//! The test is Welch's (B. L. Welch, "The generalization of 'Student's' problem when several different
//! population variances are involved", Biometrika 34, 1947): two means, unequal variances, degrees of freedom
//! after Satterthwaite. A difference is called provable when chance alone would show one as large in less than
//! 5 % of experiments.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The share of false alarms that is accepted: 95 % confidence.
pub const SIGNIFICANCE: f64 = 0.05;

/// Repeated measurements of one thing, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// How many there are; at least 1.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their sample standard deviation (n − 1); 0 for a single one.
    pub stdev: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// The summary of `values`; nothing when there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        let first = *values.first()?;
        let mean = values.iter().sum::<f64>() / count(n);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let stdev = if n > 1 {
            (squares / count(n - 1)).sqrt()
        } else {
            0.0
        };
        let min = values.iter().copied().fold(first, f64::min);
        let max = values.iter().copied().fold(first, f64::max);
        Some(Self {
            n,
            mean,
            stdev,
            min,
            max,
        })
    }

    /// By how many percent this mean lies above that of `orig`; nothing when `orig` is 0.
    #[must_use]
    pub fn overhead_percent(&self, orig: &Self) -> Option<f64> {
        (orig.mean != 0.0).then(|| (self.mean / orig.mean - 1.0) * 100.0)
    }
}

/// The outcome of Welch's test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Welch {
    /// The test statistic: the difference in units of its own doubt.
    pub t: f64,
    /// Degrees of freedom.
    pub df: f64,
    /// How often chance alone shows a difference this large (two-sided).
    pub p: f64,
}

impl Welch {
    /// True when the difference is provable at 95 %.
    #[must_use]
    pub fn is_provable(&self) -> bool {
        self.p < SIGNIFICANCE
    }
}

/// Tests whether the means behind `a` and `b` differ.
///
/// Nothing when either has fewer than two measurements: without a spread nothing can be said. Two groups
/// without any spread differ for sure or not at all.
#[must_use]
pub fn welch(a: &Summary, b: &Summary) -> Option<Welch> {
    if a.n < 2 || b.n < 2 {
        return None;
    }
    let (doubt_a, doubt_b) = (a.stdev.powi(2) / count(a.n), b.stdev.powi(2) / count(b.n));
    let doubt = doubt_a + doubt_b;
    let difference = a.mean - b.mean;
    if doubt <= 0.0 {
        let df = count(a.n + b.n - 2);
        return Some(if difference == 0.0 {
            Welch { t: 0.0, df, p: 1.0 }
        } else {
            Welch {
                t: f64::MAX.copysign(difference),
                df,
                p: 0.0,
            }
        });
    }
    let t = difference / doubt.sqrt();
    let df = doubt.powi(2) / (doubt_a.powi(2) / count(a.n - 1) + doubt_b.powi(2) / count(b.n - 1));
    let tail = StudentsT::new(0.0, 1.0, df).ok()?.cdf(-t.abs());
    Some(Welch { t, df, p: 2.0 * tail })
}

#[expect(clippy::cast_precision_loss, reason = "numbers of runs are small")]
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() < by, "{a} is not within {by} of {b}");
    }

    #[test]
    fn a_summary_by_hand() {
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!(
            (summary.n, summary.mean, summary.min, summary.max),
            (8, 5.0, 2.0, 9.0)
        );
        // The squares sum to 32; 32 / 7 = 4.5714.
        near(summary.stdev, 2.138_09, 1e-5);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[3.0]).unwrap().stdev, 0.0);
    }

    #[test]
    fn overhead_is_relative_to_orig() {
        let (orig, with) = (
            Summary::of(&[100.0, 200.0]).unwrap(),
            Summary::of(&[147.0]).unwrap(),
        );
        near(with.overhead_percent(&orig).unwrap(), -2.0, 1e-9);
        assert_eq!(with.overhead_percent(&Summary::of(&[0.0]).unwrap()), None);
    }

    /// Fifteen measurements each; the tail was integrated from the density of Student's distribution.
    #[test]
    fn welch_of_unequal_variances() {
        let a = [
            27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4,
        ];
        let b = [
            27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.5, 31.3,
        ];
        let test = welch(&Summary::of(&a).unwrap(), &Summary::of(&b).unwrap()).unwrap();
        near(test.t, -2.949_237, 1e-6);
        near(test.df, 27.311_610, 1e-6);
        near(test.p, 0.006_460, 1e-6);
        assert!(test.is_provable());
    }

    /// Means 2 and 4, variances 1 and 1, three each: t = −2/√(2/3) = −2.4495 with 4 degrees of freedom, whose
    /// two-sided tail is 0.0705 (Student's distribution with 4 degrees has a closed form).
    #[test]
    fn welch_by_hand() {
        let (a, b) = (
            Summary::of(&[1.0, 2.0, 3.0]).unwrap(),
            Summary::of(&[3.0, 4.0, 5.0]).unwrap(),
        );
        let test = welch(&a, &b).unwrap();
        near(test.t, -2.449_49, 1e-5);
        near(test.df, 4.0, 1e-9);
        near(test.p, 0.070_48, 1e-4);
        assert!(!test.is_provable());
    }

    #[test]
    fn no_spread_and_too_few() {
        let (one, two) = (Summary::of(&[1.0]).unwrap(), Summary::of(&[1.0, 1.0]).unwrap());
        assert_eq!(welch(&one, &two), None);
        assert_eq!(welch(&two, &two).unwrap().p, 1.0);
        assert!(
            welch(&two, &Summary::of(&[2.0, 2.0]).unwrap())
                .unwrap()
                .is_provable()
        );
    }
}
