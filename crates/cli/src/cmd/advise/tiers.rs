//! The tier question: how much of the memory would have to be fast.

use serde_json::{Value, json};
use thermo_report::tiers::{Latencies, SHARES, TierNeeds};

/// Flags of the tier question.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Tiers")]
pub struct Tiers {
    /// Answer instead how much fast memory a machine with two kinds of memory would need for 90, 95 and 99 %
    /// of the accesses, for all targets and for each
    #[arg(long)]
    pub tiers: bool,

    /// Latency of the fast memory, in nanoseconds
    #[arg(long, value_name = "NS", value_parser = latency, default_value = "90")]
    fast_ns: f64,

    /// Latency of the slow memory, in nanoseconds
    #[arg(long, value_name = "NS", value_parser = latency, default_value = "250")]
    slow_ns: f64,
}

fn latency(text: &str) -> Result<f64, String> {
    let ns = text.parse::<f64>().ok().filter(|ns| *ns >= 1.0 && *ns <= 1e9);
    ns.ok_or_else(|| format!("{text:?} is not a latency: give nanoseconds from 1 to 1000000000, like 250"))
}

impl Tiers {
    /// Checks that the fast memory is faster.
    ///
    /// # Errors
    /// It is not.
    pub fn check(self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.fast_ns <= self.slow_ns,
            "--fast-ns {} is above --slow-ns {}: swap the two",
            self.fast_ns,
            self.slow_ns
        );
        Ok(())
    }

    pub fn text(self, needs: &TierNeeds) -> String {
        needs.text(self.latencies())
    }

    /// The needs, with the latencies and the speed for each share of accesses.
    ///
    /// # Errors
    /// None known.
    pub fn json(self, needs: &TierNeeds) -> anyhow::Result<Value> {
        let mut value = serde_json::to_value(needs)?;
        let latencies = self.latencies();
        let speeds = SHARES.map(
            |share| json!({ "percent": share, "memory_speed": latencies.speed(f64::from(share) / 100.0) }),
        );
        value["latencies"] = serde_json::to_value(latencies)?;
        value["speeds"] = json!(speeds);
        Ok(value)
    }

    const fn latencies(self) -> Latencies {
        Latencies {
            fast_ns: self.fast_ns,
            slow_ns: self.slow_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    #[test]
    fn latencies_are_checked() {
        assert!(
            parsed::<Tiers>(&["--fast-ns", "80", "--slow-ns", "300"])
                .check()
                .is_ok()
        );
        let swapped = parsed::<Tiers>(&["--fast-ns", "300"])
            .check()
            .map_err(|error| error.to_string());
        assert!(swapped.is_err_and(|message| message.contains("swap the two")));
        assert!(latency("0").is_err() && latency("nan").is_err() && latency("inf").is_err());
    }
}
