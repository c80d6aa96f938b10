//! The tables of fast memory, with the expected speed for the latencies of two kinds of memory.

use serde::Serialize;
use thermo_units::{Bytes, Nanos};

use super::TierNeeds;
use crate::style::{Table, percent};

/// The latencies of the two kinds of memory, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latencies {
    /// Of the fast memory.
    pub fast_ns: f64,
    /// Of the slow memory.
    pub slow_ns: f64,
}

impl Latencies {
    /// The speed of memory accesses of which `share` go to fast memory, as a share of the speed with fast
    /// memory only.
    #[must_use]
    pub fn speed(self, share: f64) -> f64 {
        let mean = share * self.fast_ns + (1.0 - share) * self.slow_ns;
        self.fast_ns / mean.max(f64::MIN_POSITIVE)
    }
}

impl TierNeeds {
    /// The tables; `latencies` gives the expected speed.
    #[must_use]
    pub fn text(&self, latencies: Latencies) -> String {
        let Some(all) = &self.all else {
            return "No memory was accessed, so that there is no fast memory to plan.\n".to_owned();
        };
        let Latencies { fast_ns, slow_ns } = latencies;
        let mut text = format!(
            "Fast memory needed for a share of the accesses, of {} monitored (snapshots: {}):\n\n",
            Bytes(all.bytes),
            all.snapshots
        );
        let mut table = Table::new(1, &["accesses", "median", "largest", "memory speed"]);
        for size in all.fast {
            let share = f64::from(size.percent) / 100.0;
            table.row([
                percent(share),
                Bytes(size.median_bytes).to_string(),
                Bytes(size.max_bytes).to_string(),
                percent(latencies.speed(share)),
            ]);
        }
        text.push_str(&table.text());
        text.push_str(&format!(
            "\nMemory speed: accesses per time, compared with fast memory only, at {fast_ns} ns for fast and {slow_ns} ns \
             for slow memory\n(slow memory only: {}). Programs that compute between their accesses lose less.\n",
            percent(latencies.speed(0.0))
        ));
        if self.targets.len() > 1 {
            text.push('\n');
            text.push_str(&self.targets_text());
        }
        text.push_str(&self.resolution());
        self.basis
            .warnings
            .iter()
            .for_each(|warning| text.push_str(&format!("Note: {warning}\n")));
        text
    }

    fn targets_text(&self) -> String {
        let mut table = Table::new(1, &["pid", "memory", "90 %", "95 %", "99 %"]);
        for target in &self.targets {
            let pid = target.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let sizes = target.fast.map(|size| Bytes(size.median_bytes).to_string());
            table.row([pid, Bytes(target.bytes).to_string()].into_iter().chain(sizes));
        }
        table.text()
    }

    /// What an access is, and how finely accesses were counted.
    fn resolution(&self) -> String {
        let check = match (self.method, self.pass_ns) {
            ("scan", Some(pass)) => format!("a scan pass (up to {})", Nanos(pass)),
            ("scan", None) => "a scan pass (none was complete)".to_owned(),
            _ => "an access check of a sampled region".to_owned(),
        };
        format!(
            "\nAn access is {check} that found a page accessed, however often.\nSo the figures are the fast \
             memory for what is in use; where few pages get most of the accesses,\nless is enough.\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_follows_latencies() {
        let latencies = Latencies {
            fast_ns: 100.0,
            slow_ns: 300.0,
        };
        assert!((latencies.speed(1.0) - 1.0).abs() < 1e-9);
        assert!((latencies.speed(0.5) - 0.5).abs() < 1e-9);
        assert!((latencies.speed(0.0) - 1.0 / 3.0).abs() < 1e-9);
    }
}
