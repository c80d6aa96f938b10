//! What pages compress to: the results of sampling, by backing and idle age.

use serde::Serialize;
use thermo_engine::access_tables::Backing;
use thermo_units::Nanos;

use super::blocks::{Block, backing_index};
use super::interval::Interval;

/// Without a sample: swapped memory is assumed to compress to half of its size.
const ASSUMED_SHARE: f64 = 0.5;

/// The pages sampled with one compression algorithm.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ContentSample {
    /// The kernel's name of the algorithm.
    pub algorithm: String,
    /// Pages by backing and idle age.
    pub strata: Vec<Stratum>,
    /// CPU time to compress a page.
    pub compress: Nanos,
}

/// Sampled pages of the same backing and idle age.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stratum {
    /// Backing of the pages.
    pub backing: Backing,
    /// Index of the idle age.
    pub age: usize,
    /// Number of pages.
    pub pages: u64,
    /// Mean stored size, as a share of the page size.
    pub share: Interval<f64>,
}

/// The share of pages that one process alone maps: the kernel pages out no other. Default: all of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Exclusive(
    /// Sampled pages by backing and idle age.
    pub Vec<Stratum>,
);

impl Exclusive {
    /// The share of the memory of `backing` that was idle for the age with the index `age` or longer. `end`:
    /// the last block, as in [`ContentSample::share`].
    pub(super) fn share(&self, end: &Block, backing: Backing, age: usize) -> f64 {
        let idle = end.idle(backing);
        let of_backing = self.0.iter().filter(|stratum| stratum.backing == backing);
        let (mut weight_sum, mut sum) = (0.0, 0.0);
        for stratum in of_backing.filter(|stratum| stratum.age >= age) {
            let weight = idle.get(stratum.age).copied().unwrap_or(0.0);
            weight_sum += weight;
            sum += weight * stratum.share.mid;
        }
        match age {
            _ if weight_sum > 0.0 => sum / weight_sum,
            0 => 1.0,
            // No page of these ages was sampled.
            _ => self.share(end, backing, 0),
        }
    }
}

/// What one algorithm makes of memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compression {
    /// The kernel's name of the algorithm.
    pub algorithm: String,
    /// Stored size, as a share of the memory's size.
    pub share: Interval<f64>,
    /// CPU time to compress a page, in nanoseconds.
    pub compress_ns: u64,
}

impl ContentSample {
    /// The stored share of the memory that was idle for the age with the index `age` or longer and that goes
    /// to swap. `end`: the last block. Pages were sampled then; before, the same memory had lower ages, for
    /// no age is above the time watched.
    pub(super) fn share(&self, end: &Block, age: usize) -> Interval<f64> {
        let weight_of = weights(end, age);
        let (mut weight_sum, mut mean, mut variance) = (0.0, 0.0, 0.0);
        for stratum in self.strata.iter().filter(|stratum| stratum.pages > 0) {
            let weight = weight_of(stratum.backing, stratum.age);
            weight_sum += weight;
            mean += weight * stratum.share.mid;
            let error = (stratum.share.high - stratum.share.low) / 2.0;
            variance += (weight * error).powi(2);
        }
        if weight_sum <= 0.0 {
            return self.pooled();
        }
        // The errors of strata are independent, so their squares add.
        let (mean, margin) = (mean / weight_sum, variance.sqrt() / weight_sum);
        Interval {
            low: (mean - margin).max(0.0),
            mid: mean,
            high: (mean + margin).min(1.0),
        }
    }

    /// The share over all sampled pages, for memory of which no page was sampled.
    fn pooled(&self) -> Interval<f64> {
        let shares = self
            .strata
            .iter()
            .map(|stratum| (stratum.pages as f64, stratum.share.mid));
        let (pages, sum) = shares.fold((0.0, 0.0), |(pages, sum), (n, share)| {
            (pages + n, sum + n * share)
        });
        Interval {
            low: 0.0,
            mid: if pages > 0.0 { sum / pages } else { ASSUMED_SHARE },
            high: 1.0,
        }
    }
}

/// The share where nothing was sampled.
pub(super) const fn assumed() -> Interval<f64> {
    Interval {
        low: 0.0,
        mid: ASSUMED_SHARE,
        high: 1.0,
    }
}

/// Bytes of a backing and an idle age that is not below `from`. Pages of files do not go to swap.
fn weights(end: &Block, from: usize) -> impl Fn(Backing, usize) -> f64 {
    let idle = [Backing::Anon, Backing::File, Backing::Shmem].map(|backing| end.idle(backing));
    move |backing, age| {
        let swapped = backing != Backing::File && age >= from;
        let ages = idle.get(backing_index(backing)).filter(|_| swapped);
        ages.and_then(|ages| ages.get(age)).copied().unwrap_or(0.0)
    }
}
