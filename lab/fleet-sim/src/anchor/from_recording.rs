//! An anchor from a recording of `thermo record`: times between accesses that explain its idle ages.
//!
//! The model of a class is a mixture of pages with random accesses. A page whose accesses have the mean
//! distance m is idle for longer than a with the probability e^(-a/m). The shares of a grid of means are
//! fitted to the idle ages at the end of the recording by expectation maximisation. Memory that a recording
//! of a few minutes found idle all the time counts as cold: how rarely it is accessed, the recording cannot
//! tell.

use std::path::Path;

use thermo_engine::access_tables::{AGE_EDGES_S, NR_AGES};
use thermo_recording::model::{Record, Snapshot};

use super::{Anchor, AnchorBand};
use crate::error::Error;

/// The mean distance between accesses to memory that was idle all the time, in seconds: 10 to 100 days.
const COLD_S: (f64, f64) = (864_000.0, 8_640_000.0);
/// The shortest mean of the grid, in seconds. Each next one is twice as long.
const SHORTEST_S: f64 = 0.5;
const NR_MEANS: usize = 9;
/// Steps of the fit. Later steps change no share by as much as a thousandth.
const STEPS: usize = 2000;
/// The idle ages of this last part of the recording are averaged.
const AVERAGED: f64 = 0.2;
/// A shorter recording tells too little.
const SHORTEST_RECORDING_S: u64 = 60;
/// Smaller shares are left out.
const MIN_SHARE: f64 = 0.001;

impl Anchor {
    /// The anchor of `class` that a recording gives.
    pub(super) fn from_recording(path: &Path, class: &str) -> Result<Self, Error> {
        let (_, records, _) =
            thermo_recording::read_all(path).map_err(|error| Error::input(path, error.to_string()))?;
        let snapshots: Vec<&Snapshot> = records
            .iter()
            .filter_map(|record| match record {
                Record::Snapshot(snapshot) => Some(snapshot),
                _ => None,
            })
            .collect();
        let begin = snapshots.first().map_or(0, |snapshot| snapshot.start_ns);
        let end = snapshots.last().map_or(0, |snapshot| snapshot.time_ns);
        let seconds = (end - begin) / 1_000_000_000;
        if seconds < SHORTEST_RECORDING_S {
            let what = format!(
                "the recording has {seconds} s of data, too few to know idle ages: record for 3 minutes"
            );
            return Err(Error::input(path, what));
        }
        let late = end - ((end - begin) as f64 * AVERAGED) as u64;
        let mut idle = [0_u64; NR_AGES];
        let tables = snapshots.iter().filter(|snapshot| snapshot.time_ns >= late);
        for tables in tables
            .flat_map(|snapshot| &snapshot.targets)
            .filter_map(|target| target.tables.as_ref())
        {
            idle.iter_mut()
                .zip(tables.ages())
                .for_each(|(sum, bytes)| *sum += bytes.0);
        }
        if idle.iter().sum::<u64>() == 0 {
            let what = "the recording has no idle ages by page: record with --method scan";
            return Err(Error::input(path, what));
        }
        // Ages near the length of the recording are cut off by its start.
        let known = AGE_EDGES_S
            .iter()
            .filter(|edge| **edge <= seconds * 3 / 4)
            .count();
        Ok(Self {
            schema: 1,
            class: class.to_owned(),
            source: format!("a recording of {seconds} s"),
            bands: fit(&idle, known),
        })
    }
}

/// Shares of memory by mean distance between accesses, from bytes by idle age. Only the first `known` edges
/// count: the bucket of the last of them has no upper edge.
fn fit(idle: &[u64; NR_AGES], known: usize) -> Vec<AnchorBand> {
    let known = known.clamp(2, NR_AGES);
    let total: u64 = idle.iter().sum();
    let observed: Vec<f64> = (0..known)
        .map(|age| {
            let bytes: u64 = if age + 1 == known {
                idle[age..].iter().sum()
            } else {
                idle[age]
            };
            bytes as f64 / total as f64
        })
        .collect();
    let means: Vec<f64> = (0..NR_MEANS)
        .map(|nth| SHORTEST_S * f64::from(1 << nth))
        .collect();
    // The probability of each bucket with each mean. The last component is never accessed.
    let longer = |mean: f64, age: usize| {
        if age == known {
            0.0
        } else {
            (-(AGE_EDGES_S[age] as f64) / mean).exp()
        }
    };
    let mut components: Vec<Vec<f64>> = means
        .iter()
        .map(|mean| {
            (0..known)
                .map(|age| longer(*mean, age) - longer(*mean, age + 1))
                .collect()
        })
        .collect();
    components.push(
        (0..known)
            .map(|age| f64::from(u8::from(age + 1 == known)))
            .collect(),
    );
    let mut shares = vec![1.0 / components.len() as f64; components.len()];
    for _ in 0..STEPS {
        let expected = |age: usize| -> f64 {
            components
                .iter()
                .zip(&shares)
                .map(|(of, share)| of[age] * share)
                .sum()
        };
        let ratios: Vec<f64> = (0..known)
            .map(|age| observed[age] / expected(age).max(f64::MIN_POSITIVE))
            .collect();
        for (share, component) in shares.iter_mut().zip(&components) {
            *share *= component
                .iter()
                .zip(&ratios)
                .map(|(of, ratio)| of * ratio)
                .sum::<f64>();
        }
    }
    let half = std::f64::consts::SQRT_2;
    let ranges = means
        .iter()
        .map(|mean| (mean / half, mean * half))
        .chain([COLD_S]);
    let bands: Vec<AnchorBand> = shares
        .iter()
        .zip(ranges)
        .filter(|(share, _)| **share >= MIN_SHARE)
        .map(|(share, mean_s)| AnchorBand {
            share: *share,
            mean_s,
        })
        .collect();
    rounded(bands)
}

/// Bands with shares of four digits, which add up to 1.
fn rounded(mut bands: Vec<AnchorBand>) -> Vec<AnchorBand> {
    let total: f64 = bands.iter().map(|band| band.share).sum();
    for band in &mut bands {
        band.share = (band.share / total * 1e4).round() / 1e4;
        let (low, high) = band.mean_s;
        band.mean_s = ((low * 1e3).round() / 1e3, (high * 1e3).round() / 1e3);
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes by idle age of pages with the given shares and means.
    fn idle(parts: &[(f64, f64)]) -> [u64; NR_AGES] {
        std::array::from_fn(|age| {
            let longer = |mean: f64, age: usize| {
                AGE_EDGES_S
                    .get(age)
                    .map_or(0.0, |edge| (-(*edge as f64) / mean).exp())
            };
            let bytes = |(share, mean): &(f64, f64)| share * (longer(*mean, age) - longer(*mean, age + 1));
            (parts.iter().map(bytes).sum::<f64>() * 1e9) as u64
        })
    }

    #[test]
    fn fit_finds_the_ages_of_a_mixture_again() {
        let parts = [(0.5, 3.0), (0.2, 40.0), (0.3, 1e9)];
        let bands = fit(&idle(&parts), 8);
        let total: f64 = bands.iter().map(|band| band.share).sum();
        assert!((total - 1.0).abs() < 1e-3, "{total}");
        let fitted: Vec<(f64, f64)> = bands
            .iter()
            .map(|band| (band.share, (band.mean_s.0 * band.mean_s.1).sqrt()))
            .collect();
        let (expected, found) = (idle(&parts), idle(&fitted));
        for age in 1..7 {
            let tail = |idle: &[u64]| idle[age..].iter().sum::<u64>() as f64 / 1e9;
            assert!((tail(&expected) - tail(&found)).abs() < 0.02, "{age}: {bands:?}");
        }
        let cold = bands.last().expect("a band");
        assert_eq!(cold.mean_s, COLD_S);
        assert!((cold.share - 0.3).abs() < 0.03, "{cold:?}");
    }

    #[test]
    fn hot_memory_has_no_cold_band() {
        let bands = fit(&idle(&[(1.0, 2.0)]), 8);
        assert!(bands.iter().all(|band| band.mean_s.1 < 20.0), "{bands:?}");
    }
}
