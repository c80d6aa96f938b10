//! Samples the whole machine during a run: used memory, anonymous huge pages, collapses and splits.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thermo_kernel::{meminfo, zoneinfo};

use crate::metric::{self, Measurements};

/// Counters of `/proc/vmstat` and the keys of their metrics.
const COUNTERS: [(&str, &str); 3] = [
    ("thp_collapse_alloc", metric::COLLAPSES),
    ("thp_split_page", metric::SPLITS),
    ("thp_fault_alloc", metric::HUGE_FAULTS),
];

/// A sample: milliseconds since the start, used bytes, bytes in anonymous huge pages.
type Sample = (u64, u64, u64);

/// A thread that takes samples until the run ends.
pub(crate) struct MachineSampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Sample>>>,
    before: Vec<u64>,
    series: PathBuf,
}

impl MachineSampler {
    /// Starts sampling at `interval`. At the end the samples are written to a file in `logs`.
    pub(crate) fn start(interval: Duration, logs: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let begin = Instant::now();
        let mut samples: Vec<Sample> = sample(begin).into_iter().collect();
        let sample = move || {
            while !stopped.load(Ordering::Relaxed) {
                thread::park_timeout(interval);
                samples.extend(sample(begin));
            }
            samples
        };
        Self {
            thread: thread::Builder::new()
                .name("machine-sampler".into())
                .spawn(sample)
                .ok(),
            stop,
            before: counters(),
            series: logs.join("machine.csv"),
        }
    }

    /// Stops sampling, adds the averages and counters to `measured` and writes the samples.
    #[expect(
        clippy::cast_precision_loss,
        reason = "memory sizes and counts of one run fit"
    )]
    pub(crate) fn stop(mut self, measured: &mut Measurements) {
        for (((_, key), before), now) in COUNTERS.iter().zip(&self.before).zip(counters()) {
            measured.insert((*key).to_owned(), now.saturating_sub(*before) as f64);
        }
        let samples = self.join();
        if samples.is_empty() {
            return;
        }
        let mean = |field: fn(&Sample) -> u64| {
            let sum: u128 = samples.iter().map(|sample| u128::from(field(sample))).sum();
            sum as f64 / samples.len() as f64
        };
        measured.insert(metric::MEMUSED_AVG.into(), mean(|sample| sample.1));
        measured.insert(metric::HUGE_AVG.into(), mean(|sample| sample.2));
        let lines = samples
            .iter()
            .map(|(at, used, huge)| format!("{at},{used},{huge}\n"));
        let text: String = std::iter::once("ms,used,anon_huge\n".to_owned())
            .chain(lines)
            .collect();
        // The series is only for manual inspection, so a failure to write it does not fail the run.
        let _ = fs::write(&self.series, text);
    }

    fn join(&mut self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return Vec::new();
        };
        thread.thread().unpark();
        thread.join().unwrap_or_default()
    }
}

impl Drop for MachineSampler {
    fn drop(&mut self) {
        self.join();
    }
}

fn sample(begin: Instant) -> Option<Sample> {
    let root = Path::new("/");
    let info = meminfo::read(root).ok()?;
    // Up to 1 GiB freed a moment ago, by a collapse or by the previous run, can be on the per-CPU lists.
    let free = info.free + zoneinfo::per_cpu_free(root).ok()?;
    let at = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    Some((at, info.total.saturating_sub(free).0, info.anon_huge_pages.0))
}

fn counters() -> Vec<u64> {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    COUNTERS.iter().map(|(name, _)| counter(&text, name)).collect()
}

fn counter(vmstat: &str, name: &str) -> u64 {
    let mut lines = vmstat.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(key, _)| *key == name);
    found
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn sampler_stopped_at_once_has_a_sample() {
        let logs = tempfile::tempdir().unwrap();
        let sampler = MachineSampler::start(Duration::from_secs(1000), logs.path());
        let mut measured = Measurements::new();
        sampler.stop(&mut measured);
        assert!(measured[metric::MEMUSED_AVG] > 0.0);
        assert!(
            fs::read_to_string(logs.path().join("machine.csv"))
                .unwrap()
                .lines()
                .count()
                >= 2
        );
    }

    #[test]
    fn counter_matches_whole_name() {
        let text = "thp_split_page_failed 9\nthp_split_page 4\n";
        assert_eq!(
            (counter(text, "thp_split_page"), counter(text, "thp_none")),
            (4, 0)
        );
    }
}
