//! The tables, in the format of the kernel patch.

use std::fmt::Write as _;

use super::{PressureRun, ThroughputRun};
use crate::stats::{Summary, welch};

/// Means without squeezing (duration 0, "before") and with a duration of `after_ms` ("after"), for each
/// number of devices.
#[must_use]
pub fn before_and_after(runs: &[PressureRun], after_ms: u64) -> String {
    let mut text = String::new();
    for devices in sorted(runs.iter().map(|run| run.devices as u64)) {
        let means = |duration| {
            let matching: Vec<_> = runs
                .iter()
                .filter(|run| run.devices as u64 == devices && run.duration_ms == duration)
                .collect();
            (
                mean(matching.iter().map(|run| run.pswpin)),
                mean(matching.iter().map(|run| run.pswpout)),
            )
        };
        let (before, after) = (means(0), means(after_ms));
        let times = |before: u64, after: u64| match (before * 10).checked_div(after) {
            Some(tenths) => format!("{}.{} times less", tenths / 10, tenths % 10),
            None => format!("{before} to 0"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{devices} devices\n            {:>9} {:>9}",
            "pswpin", "pswpout"
        );
        let _ = writeln!(text, "    before  {:>9} {:>9}", before.0, before.1);
        let _ = writeln!(text, "    after   {:>9} {:>9}", after.0, after.1);
        let _ = writeln!(
            text,
            "    pswpin {}, pswpout {}\n",
            times(before.0, after.0),
            times(before.1, after.1)
        );
    }
    text
}

/// Means for each duration.
#[must_use]
pub fn durations(runs: &[PressureRun]) -> String {
    let mut text = format!(
        "    duration {:>9} {:>9} {:>9}\n",
        "pswpin", "pswpout", "requests"
    );
    for duration in sorted(runs.iter().map(|run| run.duration_ms)) {
        let matching: Vec<_> = runs.iter().filter(|run| run.duration_ms == duration).collect();
        let _ = writeln!(
            text,
            "    {duration:<8} {:>9} {:>9} {:>9}",
            mean(matching.iter().map(|run| run.pswpin)),
            mean(matching.iter().map(|run| run.pswpout)),
            mean(matching.iter().map(|run| run.requests)),
        );
    }
    text
}

/// Minimum, maximum, median, mean and standard deviation for each `max_buffer_pages`, and their comparison.
#[must_use]
pub fn throughput(runs: &[ThroughputRun]) -> String {
    let mut text = format!(
        "    max_pgs   {:<9} {:<9} {:<9} {:<9} {}\n",
        "Min", "Max", "Median", "Avg", "Stddev"
    );
    let mut summaries = Vec::new();
    for pages in sorted(runs.iter().map(|run| run.max_buffer_pages)) {
        let mut values: Vec<f64> = runs
            .iter()
            .filter(|run| run.max_buffer_pages == pages)
            .map(|run| run.mb_per_second)
            .collect();
        values.sort_by(f64::total_cmp);
        let Some(summary) = Summary::from_values(&values) else {
            continue;
        };
        let _ = writeln!(
            text,
            "    {pages:<9} {:<9.1} {:<9.1} {:<9.1} {:<9.1} {:.4}",
            summary.min,
            summary.max,
            median(&values),
            summary.mean,
            summary.stdev
        );
        summaries.push(summary);
    }
    if let [no_free_pages, default] = &summaries[..] {
        let _ = writeln!(text, "    {}", comparison(no_free_pages, default));
    }
    text
}

/// One sentence: whether the means differ by Welch's t-test, and by how much.
#[must_use]
pub fn comparison(no_free_pages: &Summary, default: &Summary) -> String {
    match welch(no_free_pages, default) {
        None => "A comparison needs two runs of each".to_owned(),
        Some(test) if !test.is_significant() => "No difference proven at 95.0% confidence".to_owned(),
        Some(_) => {
            let percent = no_free_pages.overhead_percent(default).unwrap_or_default();
            format!(
                "Difference at 95.0% confidence: {:+.1} MB/s, {percent:+.1}%, when no free page is kept",
                no_free_pages.mean - default.mean
            )
        }
    }
}

fn sorted(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

fn mean(values: impl ExactSizeIterator<Item = u64>) -> u64 {
    let count = values.len() as u64;
    values.sum::<u64>().checked_div(count).unwrap_or(0)
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(duration_ms: u64, pswpin: u64, pswpout: u64) -> PressureRun {
        PressureRun {
            devices: 64,
            duration_ms,
            pswpin,
            pswpout,
            requests: 10,
            peak_bytes: 0,
        }
    }

    #[test]
    fn tables_match_kernel_patch() {
        let text = before_and_after(&[run(0, 76_672, 185_799), run(10, 867, 3_967)], 10);
        assert!(
            text.contains("    before      76672    185799\n    after         867      3967\n"),
            "{text}"
        );
        assert!(
            text.contains("pswpin 88.4 times less, pswpout 46.8 times less"),
            "{text}"
        );
        let text = durations(&[run(1, 707, 5095), run(100, 362, 3348), run(100, 364, 3350)]);
        assert!(
            text.contains("    100            363      3349        10\n"),
            "{text}"
        );
    }

    #[test]
    fn comparison_matches_kernel_patch() {
        let runs_of = |max_buffer_pages, values: [f64; 5]| {
            values.map(|mb_per_second| ThroughputRun {
                max_buffer_pages,
                mb_per_second,
            })
        };
        let runs = [
            runs_of(0, [417.0, 420.0, 420.0, 417.0, 423.0]),
            runs_of(1024, [414.0, 416.0, 425.0, 416.0, 418.0]),
        ]
        .concat();
        let text = throughput(&runs);
        assert!(
            text.contains("No difference proven at 95.0% confidence"),
            "{text}"
        );
        assert!(
            text.contains("    0         417.0     423.0     420.0     419.4     2.5100"),
            "{text}"
        );
        let different = [
            runs_of(0, [400.0, 401.0, 402.0, 401.0, 400.0]),
            runs_of(1024, [500.0, 501.0, 502.0, 501.0, 500.0]),
        ]
        .concat();
        assert!(
            throughput(&different).contains("-100.0 MB/s, -20.0%"),
            "{}",
            throughput(&different)
        );
    }
}
