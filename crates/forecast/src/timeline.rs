//! What left and what was refaulted over time, in a bounded number of bins, and the estimates from it.
//!
//! The interval of an estimate is the 5th to 95th percentile of 1000 bootstrap samples. The recording is cut
//! into ten blocks of equal length, because neighbouring seconds are not independent; each sample draws ten
//! of them with replacement (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 8).

use serde::Serialize;
use thermo_engine::rng::Rng;
use thermo_units::Nanos;

/// Maximum number of bins. When they are full, two become one.
const MAX_BINS: usize = 2048;
/// Length of the first bins.
const FIRST_WIDTH: Nanos = Nanos::millis(500);
const NR_BLOCKS: usize = 10;
const NR_SAMPLES: usize = 1000;

/// An estimate and its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Interval {
    /// 5 % of the bootstrap samples are lower.
    pub low: i64,
    /// The estimate.
    pub mid: i64,
    /// 5 % of the bootstrap samples are higher.
    pub high: i64,
}

/// Sums over a part of the replayed time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sums {
    /// Length in seconds.
    pub seconds: f64,
    /// Bytes that have left, times seconds.
    pub out: f64,
    /// The part of `out` that is compressed.
    pub compressed: f64,
    /// Bytes refaulted.
    pub refaults: f64,
    /// Most bytes that have left.
    pub max_out: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.out += other.out;
        self.compressed += other.compressed;
        self.refaults += other.refaults;
        self.max_out = self.max_out.max(other.max_out);
    }

    /// Mean bytes that have left.
    pub fn mean_out(&self) -> f64 {
        self.out / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Mean bytes that have left, less their compressed size.
    pub fn net_saved(&self, compressed_share: f64) -> f64 {
        (self.out - self.compressed * compressed_share) / self.seconds.max(f64::MIN_POSITIVE)
    }

    pub fn refaults_per_minute(&self) -> f64 {
        self.refaults * 60.0 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// Bytes that have left at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Left {
    pub bytes: u64,
    /// The part of them that is compressed.
    pub compressed: u64,
}

/// The replayed time.
#[derive(Debug, Clone)]
pub struct Timeline {
    begin: Option<Nanos>,
    now: Nanos,
    width: Nanos,
    left: Left,
    bins: Vec<Sums>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            begin: None,
            now: Nanos::ZERO,
            width: FIRST_WIDTH,
            left: Left::default(),
            bins: Vec::new(),
        }
    }
}

impl Timeline {
    /// At `now`, `refaults` bytes came back since the last call, and `left` is out from now on.
    pub fn add(&mut self, now: Nanos, refaults: u64, left: Left) {
        let begin = *self.begin.get_or_insert(now);
        let mut from = self.now.max(begin);
        while from < now {
            let (bin, end) = self.bin_at(from.saturating_sub(begin));
            let until = begin.saturating_add(end).min(now);
            let (left, seconds) = (self.left, (until - from).as_secs_f64());
            let sums = &mut self.bins[bin];
            sums.add(&Sums {
                seconds,
                out: left.bytes as f64 * seconds,
                compressed: left.compressed as f64 * seconds,
                refaults: 0.0,
                max_out: left.bytes,
            });
            from = until;
        }
        if let Some(last) = self.bins.last_mut() {
            last.refaults += refaults as f64;
        }
        self.now = self.now.max(now);
        self.left = left;
    }

    /// Index and end of the bin at `offset` from the begin.
    fn bin_at(&mut self, offset: Nanos) -> (usize, Nanos) {
        while offset.0 / self.width.0 >= MAX_BINS as u64 {
            self.halve();
        }
        let index = (offset.0 / self.width.0) as usize;
        if self.bins.len() <= index {
            self.bins.resize(index + 1, Sums::default());
        }
        (index, self.width * (index as u64 + 1))
    }

    fn halve(&mut self) {
        let pairs = self.bins.chunks(2).map(sum_of);
        self.bins = pairs.collect();
        self.width = self.width * 2;
    }

    /// The bins from `warm_up` after the begin on.
    fn bins_after(&self, warm_up: Nanos) -> &[Sums] {
        let first = warm_up.0.div_ceil(self.width.0) as usize;
        self.bins.get(first..).unwrap_or(&[])
    }

    /// The sums from `warm_up` after the begin on.
    pub fn total(&self, warm_up: Nanos) -> Sums {
        sum_of(self.bins_after(warm_up))
    }

    /// Bytes that have left at the end.
    pub fn at_end(&self) -> u64 {
        self.left.bytes
    }

    /// At most `count` sums of equal length, each with the seconds from the begin to its end.
    pub fn course(&self, count: usize) -> Vec<(f64, Sums)> {
        let chunk = self.bins.len().div_ceil(count.max(1)).max(1);
        let mut end = 0.0;
        let point = |bins: &[Sums]| {
            let sums = sum_of(bins);
            end += sums.seconds;
            (end, sums)
        };
        self.bins.chunks(chunk).map(point).collect()
    }

    /// Estimates `low`, `mid` and `high` from the time after `warm_up`. The first and the last need not be
    /// the same function as `mid`: they may make a worse and a better assumption.
    pub fn estimate(&self, warm_up: Nanos, [low, mid, high]: [&dyn Fn(&Sums) -> f64; 3]) -> Interval {
        let bins = self.bins_after(warm_up);
        let blocks: Vec<Sums> = bins
            .chunks(bins.len().div_ceil(NR_BLOCKS).max(1))
            .map(sum_of)
            .collect();
        // The same recording gives the same interval.
        let mut rng = Rng::new(1);
        let samples: Vec<Sums> = (0..NR_SAMPLES).map(|_| resample(&blocks, &mut rng)).collect();
        let percentile = |percent: usize, value: &dyn Fn(&Sums) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[percent * (NR_SAMPLES - 1) / 100].round() as i64
        };
        let mid = mid(&sum_of(bins)).round() as i64;
        Interval {
            low: percentile(5, low).min(mid),
            mid,
            high: percentile(95, high).max(mid),
        }
    }
}

fn sum_of(bins: &[Sums]) -> Sums {
    let mut sum = Sums::default();
    bins.iter().for_each(|bin| sum.add(bin));
    sum
}

fn resample(blocks: &[Sums], rng: &mut Rng) -> Sums {
    let mut sum = Sums::default();
    for _ in blocks {
        sum.add(&blocks[rng.below(blocks.len() as u64) as usize]);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(bytes: u64) -> Left {
        Left {
            bytes,
            compressed: bytes,
        }
    }

    #[test]
    fn mean_excludes_warm_up() {
        let mut timeline = Timeline::default();
        timeline.add(Nanos::secs(100), 0, left(0));
        timeline.add(Nanos::secs(110), 0, left(1000));
        timeline.add(Nanos::secs(120), 50, left(500));
        timeline.add(Nanos::secs(130), 0, left(500));
        let all = timeline.total(Nanos::ZERO);
        assert_eq!((all.mean_out(), all.refaults, all.max_out), (500.0, 50.0, 1000));
        let late = timeline.total(Nanos::secs(10));
        assert_eq!((late.mean_out(), late.net_saved(0.5)), (750.0, 375.0));
        assert_eq!(late.refaults_per_minute(), 150.0);
    }

    #[test]
    fn long_time_keeps_sums_in_bounded_bins() {
        let mut timeline = Timeline::default();
        for second in 0..=100_000 {
            timeline.add(Nanos::secs(second), 1, left(7));
        }
        assert!(timeline.bins.len() <= MAX_BINS);
        let all = timeline.total(Nanos::ZERO);
        assert!((all.seconds - 100_000.0).abs() < 1e-3 && (all.mean_out() - 7.0).abs() < 1e-6);
        assert_eq!(all.refaults, 100_000.0);
        assert!(timeline.course(100).len() <= 100);
    }

    #[test]
    fn interval_is_wide_for_bursts_and_narrow_for_steady_rates() {
        let rate: [&dyn Fn(&Sums) -> f64; 3] = [&Sums::refaults_per_minute; 3];
        let (mut steady, mut burst) = (Timeline::default(), Timeline::default());
        for second in 0..=100 {
            steady.add(Nanos::secs(second), 10, left(0));
            burst.add(Nanos::secs(second), if second == 50 { 1000 } else { 0 }, left(0));
        }
        let (steady, burst) = (
            steady.estimate(Nanos::ZERO, rate),
            burst.estimate(Nanos::ZERO, rate),
        );
        assert_eq!(steady.mid, 600);
        assert!(steady.low >= 590 && steady.high <= 610, "{steady:?}");
        assert_eq!((burst.low, burst.mid), (0, 600));
        assert!(burst.high >= 1200, "{burst:?}");
    }

    #[test]
    fn empty_timeline_estimates_zero() {
        let rate: [&dyn Fn(&Sums) -> f64; 3] = [&Sums::refaults_per_minute; 3];
        assert_eq!(
            Timeline::default().estimate(Nanos::ZERO, rate),
            Interval::default()
        );
    }
}
