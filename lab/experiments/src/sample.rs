//! Readings during a run: memory at intervals, counters at the start and at the end.

use std::path::Path;
use std::time::Duration;

use thermo_kernel::status;

use crate::cgroup::{Cgroup, CpuUse, MemoryUse};
use crate::metric::{self, Measurements};
use crate::process::Program;
use crate::swap::Swap;

/// Time for which a program may free its memory before it ends.
const EXIT_TIME: Duration = Duration::from_millis(100);

/// Result of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) measured: Measurements,
    pub(crate) samples: Vec<(u64, u64, u64)>,
}

/// Counters of a cgroup at one time.
pub(crate) struct Counters {
    cpu: Option<CpuUse>,
    major_faults: u64,
    stalled: Option<u64>,
}

impl Counters {
    pub(crate) fn read(group: &Cgroup) -> Self {
        Self {
            cpu: group.cpu(),
            major_faults: group.memory().major_faults,
            stalled: group.stalled_micros(),
        }
    }

    /// Adds the differences between the counters of `group` now and these.
    #[expect(clippy::cast_precision_loss, reason = "counts of one run fit")]
    pub(crate) fn differences(&self, group: &Cgroup, measured: &mut Measurements) {
        let now = Self::read(group);
        let faults = now.major_faults.saturating_sub(self.major_faults);
        measured.insert(metric::MAJOR_FAULTS.into(), faults as f64);
        if let (Some(before), Some(now)) = (self.cpu, now.cpu) {
            measured.insert(metric::CPU_USER.into(), (now.user - before.user).max(0.0));
            measured.insert(metric::CPU_SYSTEM.into(), (now.system - before.system).max(0.0));
        }
        if let (Some(before), Some(now)) = (self.stalled, now.stalled) {
            measured.insert(metric::PSI_SOME.into(), now.saturating_sub(before) as f64 / 1e6);
        }
    }
}

/// Memory over time.
#[derive(Default)]
pub(crate) struct Samples {
    /// Milliseconds since the start, resident bytes, bytes of swapped pages in zram.
    memory: Vec<(u64, u64, u64)>,
    swapped: Vec<u64>,
    /// Peak resident bytes of all samples, including those that [`Self::ended_at`] drops.
    peak: u64,
    thermo_rss: Option<u64>,
}

impl Samples {
    pub(crate) fn take(
        &mut self,
        at: Duration,
        now: MemoryUse,
        swap: Option<&Swap>,
        thermo: Option<&Program>,
    ) {
        self.peak = self.peak.max(now.resident);
        let in_zram = swap.map_or(0, |swap| swap.zram_bytes_for(now.swapped));
        self.memory.push((
            u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            now.resident,
            in_zram,
        ));
        self.swapped.push(now.swapped);
        self.thermo_rss = self
            .thermo_rss
            .max(thermo.and_then(|thermo| peak_rss(thermo.id())));
    }

    /// Drops the samples of the last 100 ms before `end`: an exiting program frees its memory, which is no
    /// saving.
    pub(crate) fn ended_at(&mut self, end: Duration) {
        let alive = end.saturating_sub(EXIT_TIME).as_millis();
        let keep = self
            .memory
            .iter()
            .take_while(|sample| u128::from(sample.0) <= alive)
            .count()
            .max(1);
        self.memory.truncate(keep);
        self.swapped.truncate(keep);
    }

    #[expect(clippy::cast_precision_loss, reason = "memory sizes fit")]
    pub(crate) fn outcome(self) -> Outcome {
        let mean = |values: &mut dyn Iterator<Item = u64>| {
            let (sum, n) = values.fold((0u128, 0u32), |(sum, n), value| (sum + u128::from(value), n + 1));
            sum as f64 / f64::from(n.max(1))
        };
        let last_quarter = self.memory.len() * 3 / 4;
        let mut measured = Measurements::new();
        let mut put = |key: &str, value: f64| measured.insert(key.to_owned(), value);
        put(
            metric::MEMORY_AVG,
            mean(&mut self.memory.iter().map(|sample| sample.1)),
        );
        put(metric::MEMORY_PEAK, self.peak as f64);
        put(
            metric::NET_AVG,
            mean(&mut self.memory.iter().map(|sample| sample.1 + sample.2)),
        );
        put(
            metric::NET_END,
            mean(
                &mut self.memory[last_quarter..]
                    .iter()
                    .map(|sample| sample.1 + sample.2),
            ),
        );
        put(metric::SWAP_AVG, mean(&mut self.swapped.iter().copied()));
        if let Some(rss) = self.thermo_rss {
            put(metric::THERMO_RSS, rss as f64);
        }
        Outcome {
            measured,
            samples: self.memory,
        }
    }
}

/// Peak resident bytes of a process.
fn peak_rss(pid: u32) -> Option<u64> {
    let status = status::read(Path::new("/"), pid).ok()?;
    Some(status.vm_hwm.0).filter(|peak| *peak > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_memory_is_resident_plus_zram() {
        let samples = Samples {
            memory: vec![
                (0, 100, 0),
                (100, 80, 10),
                (200, 60, 20),
                (300, 40, 30),
                (395, 7, 0),
            ],
            swapped: vec![0, 20, 40, 60, 0],
            peak: 100,
            thermo_rss: Some(5),
        };
        let outcome = {
            let mut samples = samples;
            samples.ended_at(Duration::from_millis(400));
            samples.outcome()
        };
        let measured = |key: &str| outcome.measured.get(key).copied();
        assert_eq!(
            outcome.samples.len(),
            4,
            "the last sample is of an exiting program"
        );
        assert_eq!(
            (measured(metric::MEMORY_AVG), measured(metric::MEMORY_PEAK)),
            (Some(70.0), Some(100.0))
        );
        assert_eq!(
            (measured(metric::NET_AVG), measured(metric::NET_END)),
            (Some(85.0), Some(70.0))
        );
        assert_eq!(
            (measured(metric::SWAP_AVG), measured(metric::THERMO_RSS)),
            (Some(30.0), Some(5.0))
        );
    }

    #[test]
    fn run_shorter_than_interval_keeps_one_sample() {
        let mut samples = Samples {
            memory: vec![(0, 9, 0)],
            swapped: vec![0],
            peak: 9,
            thermo_rss: None,
        };
        samples.ended_at(Duration::from_millis(3));
        assert_eq!(samples.outcome().measured.get(metric::MEMORY_AVG), Some(&9.0));
    }

    #[test]
    fn peak_includes_dropped_samples() {
        let mut samples = Samples::default();
        for (at, resident) in [(0, 0), (10, 33), (20, 30)] {
            let now = MemoryUse {
                resident,
                swapped: 0,
                major_faults: 0,
            };
            samples.take(Duration::from_millis(at), now, None, None);
        }
        samples.ended_at(Duration::from_millis(25));
        assert_eq!(samples.outcome().measured.get(metric::MEMORY_PEAK), Some(&33.0));
    }
}
