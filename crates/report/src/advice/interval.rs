//! Estimates with an interval.

use serde::Serialize;

/// An estimate and the interval that it lies in with a probability of about 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Interval<T> {
    /// The least likely value.
    pub low: T,
    /// The estimate.
    pub mid: T,
    /// The largest likely value.
    pub high: T,
}

/// Quantiles of Student's t distribution at 97.5 %, for 1 to 10 degrees of freedom.
const STUDENT: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];

impl Interval<f64> {
    /// A value that is known exactly.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self {
            low: value,
            mid: value,
            high: value,
        }
    }

    /// The mean of `values`, and its confidence interval under a normal distribution of the mean. Not below
    /// zero. With one value, the interval has no lower end.
    #[must_use]
    pub fn of_mean(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mid = values.iter().sum::<f64>() / n.max(1.0);
        let Some(degrees) = values.len().checked_sub(1).filter(|degrees| *degrees > 0) else {
            return Self {
                low: 0.0,
                mid,
                high: mid * 2.0,
            };
        };
        let variance = values.iter().map(|value| (value - mid).powi(2)).sum::<f64>() / degrees as f64;
        let margin = STUDENT.get(degrees - 1).copied().unwrap_or(2.0) * (variance / n).sqrt();
        Self {
            low: (mid - margin).max(0.0),
            mid,
            high: mid + margin,
        }
    }

    /// The mean of `values`; the interval goes from their 5th to their 95th percentile.
    #[must_use]
    pub fn of_range(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = sorted.len().saturating_sub(1);
            let rank = (share * last as f64).round() as usize;
            sorted.get(rank).copied().unwrap_or(0.0)
        };
        let mid = values.iter().sum::<f64>() / values.len().max(1) as f64;
        Self {
            low: at(0.05).min(mid),
            mid,
            high: at(0.95).max(mid),
        }
    }

    /// Each end through `value`, which must not decrease.
    #[must_use]
    pub fn map(self, value: impl Fn(f64) -> f64) -> Self {
        Self {
            low: value(self.low),
            mid: value(self.mid),
            high: value(self.high),
        }
    }

    /// Whole bytes.
    #[must_use]
    pub fn bytes(self) -> Interval<u64> {
        // The cast rounds towards zero, and negative values become 0.
        let [low, mid, high] = [self.low, self.mid, self.high].map(|value| value.round() as u64);
        Interval { low, mid, high }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_mean_follows_spread_and_number() {
        assert_eq!(Interval::of_mean(&[5.0; 4]), Interval::exact(5.0));
        let wide = Interval::of_mean(&[0.0, 10.0]);
        assert_eq!((wide.low, wide.mid), (0.0, 5.0));
        assert!(wide.high > 60.0, "two values tell little: {wide:?}");
        let many: Vec<f64> = (0..100).map(|n| f64::from(n % 2) * 10.0).collect();
        let narrow = Interval::of_mean(&many);
        assert!(narrow.low > 3.9 && narrow.high < 6.1, "{narrow:?}");
        assert_eq!(Interval::of_mean(&[]).mid, 0.0);
    }

    #[test]
    fn interval_of_range_leaves_out_extremes() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        let range = Interval::of_range(&values);
        assert_eq!((range.low, range.mid, range.high), (5.0, 50.0, 95.0));
        assert_eq!(Interval::of_range(&[]), Interval::exact(0.0));
    }
}
