//! Estimates from a stratified random sample, with 95 % confidence intervals.
//!
//! The mean is the usual one: the means of the strata, weighted by their bytes. Its variance is the sum of
//! the variances of the strata with the finite-population correction (Cochran, Sampling Techniques, chapter
//! 5). The interval is that of Student's t, cut to 0 and 1.
//!
//! Two changes make small strata honest, where a few equal pages would otherwise claim to be certain:
//! * One page that differs by 1 from its mean counts as drawn, spread over all pages: what was not seen in n
//!   pages may be 1/n of memory.
//! * The variance of a stratum is drawn towards the variance within all strata, which counts like
//!   [`PRIOR_PAGES`] pages.
//!
//! A bootstrap was not taken: it draws from the pages seen, so it has no width for equal pages either.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Weight of the common variance in the variance of one stratum, in pages.
const PRIOR_PAGES: f64 = 4.0;
/// Upper quantile of a two-sided interval of 95 %.
const QUANTILE: f64 = 0.975;

/// A share between 0 and 1 with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The estimated share.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The values of the sampled pages of one stratum.
#[derive(Debug, Clone)]
pub(crate) struct StratumValues {
    /// Bytes of the stratum, or another weight.
    pub(crate) weight: f64,
    /// Pages of the stratum.
    pub(crate) population: f64,
    /// One value between 0 and 1 for each sampled page.
    pub(crate) values: Vec<f64>,
}

impl StratumValues {
    fn nr(&self) -> f64 {
        self.values.len() as f64
    }

    fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.nr()
    }

    fn sum_of_squares(&self) -> f64 {
        let mean = self.mean();
        self.values.iter().map(|value| (value - mean).powi(2)).sum()
    }

    fn degrees(&self) -> f64 {
        self.nr() - 1.0
    }

    /// Variance of the mean.
    fn variance_of_mean(&self, common: Common) -> f64 {
        let squares =
            self.sum_of_squares() + self.nr() * common.unseen_per_page + PRIOR_PAGES * common.variance;
        let variance = squares / (self.degrees() + PRIOR_PAGES);
        let unseen = (1.0 - self.nr() / self.population).max(0.0);
        variance * unseen / self.nr()
    }
}

/// What is assumed alike for all strata of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Common {
    /// Variance within strata.
    variance: f64,
    /// Share of each page in the square of the one page that was not seen.
    unseen_per_page: f64,
}

impl Common {
    /// From all strata of a sample; those without values are ignored.
    pub(crate) fn new(strata: &[StratumValues]) -> Self {
        let seen = || strata.iter().filter(|stratum| !stratum.values.is_empty());
        let squares: f64 = seen().map(StratumValues::sum_of_squares).sum();
        let degrees: f64 = seen().map(StratumValues::degrees).sum();
        let nr: f64 = seen().map(StratumValues::nr).sum();
        Self {
            variance: (squares + 1.0) / (degrees + 1.0),
            unseen_per_page: 1.0 / nr.max(1.0),
        }
    }
}

/// Estimates the mean over `strata`, which are some of the strata of the sample behind `common`. `None` if no
/// stratum has values. Strata without values are left out: the estimate says nothing about them.
pub(crate) fn estimate(strata: &[StratumValues], common: Common) -> Option<Estimate> {
    let seen = || strata.iter().filter(|stratum| !stratum.values.is_empty());
    let weight: f64 = seen().map(|stratum| stratum.weight).sum();
    if weight <= 0.0 {
        return None;
    }
    let share = |stratum: &StratumValues| stratum.weight / weight;
    let mean: f64 = seen().map(|stratum| share(stratum) * stratum.mean()).sum();
    let variance: f64 = seen()
        .map(|stratum| share(stratum).powi(2) * stratum.variance_of_mean(common))
        .sum();
    let degrees: f64 = PRIOR_PAGES + seen().map(StratumValues::degrees).sum::<f64>();
    let half = t_quantile(degrees) * variance.sqrt();
    Some(Estimate {
        mean,
        low: (mean - half).max(0.0),
        high: (mean + half).min(1.0),
    })
}

fn t_quantile(degrees: f64) -> f64 {
    // The parameters are constants, and degrees of freedom are at least those of the prior.
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::INFINITY, |t| t.inverse_cdf(QUANTILE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use thermo_engine::rng::Rng;

    use super::*;

    fn stratum(weight: f64, values: &[f64]) -> StratumValues {
        let (population, values) = (1e6, values.to_vec());
        StratumValues {
            weight,
            population,
            values,
        }
    }

    fn of(strata: &[StratumValues]) -> Estimate {
        estimate(strata, Common::new(strata)).unwrap()
    }

    #[test]
    fn mean_is_weighted_by_bytes() {
        let found = of(&[stratum(3.0, &[0.2; 20]), stratum(1.0, &[0.6; 5])]);
        assert!((found.mean - 0.3).abs() < 1e-9);
        assert!(found.low < 0.3 && found.high > 0.3);
        assert!(estimate(&[stratum(1.0, &[])], Common::new(&[])).is_none());
        let partly = of(&[stratum(1.0, &[0.5; 9]), stratum(9.0, &[])]);
        assert!((partly.mean - 0.5).abs() < 1e-9);
    }

    #[test]
    fn equal_pages_are_not_certainty() {
        let few = of(&[stratum(1.0, &[0.0; 8])]);
        assert!((few.low, few.mean) == (0.0, 0.0) && few.high > 0.2, "{few:?}");
        let many = of(&[stratum(1.0, &[0.0; 400])]);
        assert!(many.high > 0.003 && many.high < 0.01, "{many:?}");
    }

    #[test]
    fn whole_population_is_certain() {
        let mut all = stratum(1.0, &[0.1, 0.5, 0.9]);
        all.population = 3.0;
        let found = of(&[all]);
        assert_eq!((found.low, found.high), (found.mean, found.mean));
    }

    /// Pages as they occur: same-filled, raw, and a spread of ratios, in unlike shares for each stratum.
    fn draw(rng: &mut Rng, nth: u64) -> f64 {
        match rng.below(10) {
            kind if kind < nth => 0.0,
            9 => 1.0,
            _ => 0.2 + 0.04 * nth as f64 + rng.below(1000) as f64 * 3e-4,
        }
    }

    /// The mean of [`draw`].
    fn truth(nth: u64) -> f64 {
        let spread = 0.2 + 0.04 * nth as f64 + 499.5 * 3e-4;
        (1.0 + spread * (9 - nth) as f64) / 10.0
    }

    #[test]
    fn interval_covers_truth_in_simulation() {
        let mut rng = Rng::new(11);
        let sizes = [(40.0, 160), (30.0, 120), (20.0, 80), (7.0, 28), (3.0, 12)];
        let expected: f64 = (0..5).map(|nth| sizes[nth as usize].0 / 100.0 * truth(nth)).sum();
        let (mut covered, mut width, runs) = (0, 0.0, 1000);
        for _ in 0..runs {
            let strata: Vec<StratumValues> = sizes
                .iter()
                .zip(0..)
                .map(|((weight, nr), nth)| {
                    let values: Vec<f64> = (0..*nr).map(|_| draw(&mut rng, nth)).collect();
                    stratum(*weight, &values)
                })
                .collect();
            let found = of(&strata);
            covered += u32::from(found.low <= expected && expected <= found.high);
            width += (found.high - found.low) / f64::from(runs);
        }
        // Four standard errors of a share of 95 % in 1000 runs.
        assert!(
            (922..=990).contains(&covered),
            "{covered} of {runs}, width {width}"
        );
        assert!(width < 0.08, "{width}");
    }
}
