//! Statistics over repeated runs: mean, spread, and significance of differences.
//!
//! The test is Welch's t-test (B. L. Welch, "The generalization of 'Student's' problem when several different
//! population variances are involved", Biometrika 34, 1947): two means, unequal variances, degrees of freedom
//! by Satterthwaite. A difference is significant when chance alone gives one as large in less than 5 % of
//! experiments.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Significance level: the accepted share of false positives, for 95 % confidence.
pub const SIGNIFICANCE: f64 = 0.05;

/// Summary of repeated measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Number of measurements, at least 1.
    pub n: usize,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation (n - 1); 0 for a single measurement.
    pub stdev: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl Summary {
    /// Summarises `values`. `None` when there are none.
    #[must_use]
    pub fn from_values(values: &[f64]) -> Option<Self> {
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

    /// By how many percent this mean lies above that of `base`. `None` when the mean of `base` is 0.
    #[must_use]
    pub fn overhead_percent(&self, base: &Self) -> Option<f64> {
        (base.mean != 0.0).then(|| (self.mean / base.mean - 1.0) * 100.0)
    }
}

/// Result of Welch's test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Welch {
    /// Test statistic: the difference divided by its standard error.
    pub t: f64,
    /// Degrees of freedom.
    pub df: f64,
    /// Two-sided p-value: probability of a difference this large by chance alone.
    pub p: f64,
}

impl Welch {
    /// True when the difference is significant at 95 %.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        self.p < SIGNIFICANCE
    }
}

/// Tests whether the means behind `a` and `b` differ.
///
/// `None` when either has fewer than two measurements, because the variance is unknown. If neither varies, p
/// is 0 when the means differ, else 1.
#[must_use]
pub fn welch(a: &Summary, b: &Summary) -> Option<Welch> {
    if a.n < 2 || b.n < 2 {
        return None;
    }
    // Squared standard errors.
    let (variance_a, variance_b) = (a.stdev.powi(2) / count(a.n), b.stdev.powi(2) / count(b.n));
    let variance = variance_a + variance_b;
    let difference = a.mean - b.mean;
    if variance <= 0.0 {
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
    let t = difference / variance.sqrt();
    let df = variance.powi(2) / (variance_a.powi(2) / count(a.n - 1) + variance_b.powi(2) / count(b.n - 1));
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
    fn summary_matches_hand_calculation() {
        let summary = Summary::from_values(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!(
            (summary.n, summary.mean, summary.min, summary.max),
            (8, 5.0, 2.0, 9.0)
        );
        // The squares sum to 32; 32 / 7 = 4.5714.
        near(summary.stdev, 2.138_09, 1e-5);
        assert_eq!(Summary::from_values(&[]), None);
        assert_eq!(Summary::from_values(&[3.0]).unwrap().stdev, 0.0);
    }

    #[test]
    fn overhead_is_relative_to_baseline() {
        let (orig, with) = (
            Summary::from_values(&[100.0, 200.0]).unwrap(),
            Summary::from_values(&[147.0]).unwrap(),
        );
        near(with.overhead_percent(&orig).unwrap(), -2.0, 1e-9);
        assert_eq!(
            with.overhead_percent(&Summary::from_values(&[0.0]).unwrap()),
            None
        );
    }

    /// 15 measurements each. The p-value was integrated from the density of Student's distribution.
    #[test]
    fn welch_with_unequal_variances() {
        let a = [
            27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4,
        ];
        let b = [
            27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.5, 31.3,
        ];
        let test = welch(
            &Summary::from_values(&a).unwrap(),
            &Summary::from_values(&b).unwrap(),
        )
        .unwrap();
        near(test.t, -2.949_237, 1e-6);
        near(test.df, 27.311_610, 1e-6);
        near(test.p, 0.006_460, 1e-6);
        assert!(test.is_significant());
    }

    /// Means 2 and 4, variances 1 and 1, three each: t = -2/sqrt(2/3) = -2.4495 with 4 degrees of freedom.
    /// The two-sided p-value is 0.0705 (Student's distribution with 4 degrees has a closed form).
    #[test]
    fn welch_matches_hand_calculation() {
        let (a, b) = (
            Summary::from_values(&[1.0, 2.0, 3.0]).unwrap(),
            Summary::from_values(&[3.0, 4.0, 5.0]).unwrap(),
        );
        let test = welch(&a, &b).unwrap();
        near(test.t, -2.449_49, 1e-5);
        near(test.df, 4.0, 1e-9);
        near(test.p, 0.070_48, 1e-4);
        assert!(!test.is_significant());
    }

    #[test]
    fn welch_handles_zero_variance_and_single_run() {
        let (one, two) = (
            Summary::from_values(&[1.0]).unwrap(),
            Summary::from_values(&[1.0, 1.0]).unwrap(),
        );
        assert_eq!(welch(&one, &two), None);
        assert_eq!(welch(&two, &two).unwrap().p, 1.0);
        assert!(
            welch(&two, &Summary::from_values(&[2.0, 2.0]).unwrap())
                .unwrap()
                .is_significant()
        );
    }
}
