//! Estimates the cost of clearing accessed bits, per range and per page, from the calls of the scans.
//!
//! Each range of a `process_madvise(MADV_COLD)` call ends with a TLB flush. While the target sleeps a range
//! costs about 0.6 µs. While the target runs on another CPU the flush interrupts that CPU, and a range costs
//! 10 to 14 µs. A page in a range costs about 60 ns, whether its accessed bit is set or not. So two ranges
//! with few present pages between them are cheaper as one range. The break-even gap is the cost of a range
//! divided by the cost of a page.
//!
//! Both costs are fitted by a running least-squares estimate over the CPU time of the calls. Calls of one
//! target tend to be alike, and then only one combination of both costs is known. So one stripe in
//! [`EXPLORE`] is cleared with a gap a quarter or four times as large, and a weak prior decides the rest.

use thermo_units::Nanos;

/// The estimate before any call was measured, in nanoseconds: a break-even gap of 128 pages.
const RANGE: f64 = 7680.0;
const PAGE: f64 = 60.0;
/// Limits of the gap, in present pages. The upper limit is one entry less than a page-table page.
const MIN_GAP: u64 = 16;
const MAX_GAP: u64 = 511;
/// Weight of older calls after each new call, and weight of the initial estimate.
const DECAY: f64 = 1.0 - 1.0 / 256.0;
const PRIOR: f64 = 0.05;
/// A call that took longer than this many times the expected time was disturbed, and counts as this much.
const OUTLIER: f64 = 4.0;
/// One stripe in this many uses another gap.
const EXPLORE: u32 = 32;

/// The estimate for one target.
#[derive(Debug, Clone)]
pub(super) struct GapCost {
    /// Cost of a range and of a page, as multiples of [`RANGE`] and [`PAGE`].
    range: f64,
    page: f64,
    /// Weighted sums of the normal equations: range², range × page, page², range × time, page × time.
    sums: [f64; 5],
    stripes: u32,
    /// A constant gap, for measurements.
    fixed: Option<u64>,
}

impl Default for GapCost {
    fn default() -> Self {
        Self {
            range: 1.0,
            page: 1.0,
            sums: [0.0; 5],
            stripes: 0,
            fixed: None,
        }
    }
}

impl GapCost {
    /// An estimate with a constant gap.
    pub(super) fn fixed(pages: u64) -> Self {
        Self {
            fixed: Some(pages),
            ..Self::default()
        }
    }

    /// Adds a call that cleared `ranges` with `pages` present pages of 4 KiB in `took` CPU time.
    pub(super) fn record(&mut self, ranges: u64, pages: u64, took: Nanos) {
        let (ranges, pages) = (ranges as f64 * RANGE, pages as f64 * PAGE);
        let expected = self.range * ranges + self.page * pages;
        if expected <= 0.0 {
            return;
        }
        // Relative errors count: a large call must not outweigh many small ones.
        let (x, y) = (ranges / expected, pages / expected);
        let time = (took.0 as f64 / expected).min(OUTLIER);
        let row = [x * x, x * y, y * y, x * time, y * time];
        for (sum, new) in self.sums.iter_mut().zip(row) {
            *sum = *sum * DECAY + new;
        }
        self.solve();
    }

    fn solve(&mut self) {
        let [xx, xy, yy, xt, yt] = self.sums;
        let (xx, yy, xt, yt) = (xx + PRIOR, yy + PRIOR, xt + PRIOR, yt + PRIOR);
        // Positive: the prior makes the matrix positive definite.
        let determinant = xx * yy - xy * xy;
        self.range = ((xt * yy - yt * xy) / determinant).clamp(0.02, 10.0);
        self.page = ((yt * xx - xt * xy) / determinant).clamp(0.1, 10.0);
    }

    /// The largest gap, in present pages, that is worth bridging.
    pub(super) fn break_even(&self) -> u64 {
        let gap = self.range * RANGE / (self.page * PAGE);
        self.fixed.unwrap_or((gap as u64).clamp(MIN_GAP, MAX_GAP))
    }

    /// The gap for the next stripe: mostly the break-even gap, sometimes another one to learn from.
    pub(super) fn next_gap(&mut self) -> u64 {
        self.stripes = self.stripes.wrapping_add(1);
        let gap = self.break_even();
        match self.stripes % (2 * EXPLORE) {
            _ if self.fixed.is_some() => gap,
            0 => (gap / 4).max(MIN_GAP),
            EXPLORE => (gap * 4).min(MAX_GAP),
            _ => gap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clears 2,000 stripes with `accessed` ranges each if nothing is bridged, and fewer with larger gaps.
    /// Returns the break-even gap.
    fn learned(range: f64, page: f64, accessed: u64) -> u64 {
        let mut cost = GapCost::default();
        for _ in 0..2000 {
            let gap = cost.next_gap();
            let ranges = (accessed * 20 / (20 + gap * gap / 20)).max(4);
            let pages = 2000 * (accessed - ranges + 1) / accessed + ranges;
            let took = range * ranges as f64 + page * pages as f64;
            cost.record(ranges, pages, Nanos(took as u64));
        }
        cost.break_even()
    }

    #[test]
    fn gap_starts_at_128_pages() {
        let mut cost = GapCost::default();
        assert_eq!(cost.break_even(), 128);
        cost.record(0, 0, Nanos(5));
        assert_eq!(cost.break_even(), 128);
    }

    #[test]
    fn gap_follows_cost_of_ranges() {
        for (range, page, expected) in [
            (12_000.0, 60.0, 160..=240),
            (600.0, 60.0, 16..=20),
            (40_000.0, 40.0, 280..=511),
        ] {
            let gap = learned(range, page, 140);
            assert!(expected.contains(&gap), "{range} ns, {page} ns: {gap} pages");
        }
    }

    #[test]
    fn uniform_calls_do_not_change_ratio() {
        let mut cost = GapCost::default();
        for _ in 0..1000 {
            // As expected for 128 pages: the ratio stays unknown.
            cost.record(4, 2000, Nanos((4.0 * RANGE + 2000.0 * PAGE) as u64));
        }
        assert!((125..=131).contains(&cost.break_even()), "{}", cost.break_even());
    }

    #[test]
    fn one_disturbed_call_changes_little() {
        let mut cost = GapCost::default();
        for _ in 0..64 {
            for (ranges, pages) in [(4, 2000), (140, 140)] {
                let took = ranges as f64 * RANGE + pages as f64 * PAGE;
                cost.record(ranges, pages, Nanos(took as u64));
            }
        }
        cost.record(4, 2000, Nanos::millis(50));
        assert!((90..=170).contains(&cost.break_even()), "{}", cost.break_even());
    }

    #[test]
    fn one_stripe_in_32_explores() {
        let mut cost = GapCost::default();
        let gaps: Vec<u64> = (0..64).map(|_| cost.next_gap()).collect();
        assert_eq!(gaps.iter().filter(|gap| **gap != 128).count(), 2);
        assert!(gaps.contains(&32) && gaps.contains(&511));
    }
}
