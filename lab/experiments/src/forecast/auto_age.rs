//! `thermo reclaim --auto`: does it hold its bound, and what does it save?

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::act::Measured;
use super::cell::Cell;

/// The bound of `thermo reclaim --auto`: this share of the working set a minute.
pub const BOUND: f64 = 0.002;
/// Minutes that do not count: an automatic age needs a past.
pub const FIRST_MINUTES: usize = 5;

/// A run with an automatic age.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AutoRun {
    /// The workload.
    pub workload: String,
    /// Mean working set while it was watched, in bytes.
    pub working_set_bytes: f64,
    /// What was measured in each minute.
    pub minutes: Vec<Measured>,
}

impl AutoRun {
    /// Refaults that the bound allows in a minute, in bytes.
    fn bound(&self) -> f64 {
        self.working_set_bytes * BOUND
    }

    fn counted(&self) -> &[Measured] {
        self.minutes.get(FIRST_MINUTES..).unwrap_or_default()
    }

    /// Number of counted minutes within the bound.
    fn within(&self) -> usize {
        let bound = self.bound();
        let is_within = |minute: &&Measured| minute.refault_bytes_per_min <= bound;
        self.counted().iter().filter(is_within).count()
    }

    /// Mean net saving of the counted minutes.
    fn net(&self) -> f64 {
        mean(self.counted().iter().map(Measured::net_bytes))
    }

    /// The fixed age of `cells` that saves most within the bound, and its mean net saving.
    fn best_fixed(&self, cells: &[Cell]) -> Option<(u64, f64)> {
        let of_workload = || cells.iter().filter(|cell| cell.workload == self.workload);
        let mut ages: Vec<u64> = of_workload().map(|cell| cell.age_s).collect();
        ages.sort_unstable();
        ages.dedup();
        let mean_of = |age: u64, value: &dyn Fn(&Measured) -> f64| {
            let cells = of_workload().filter(|cell| cell.age_s == age);
            mean(cells.map(|cell| value(&cell.measured)))
        };
        ages.into_iter()
            .filter(|age| mean_of(*age, &|was| was.refault_bytes_per_min) <= self.bound())
            .map(|age| (age, mean_of(age, &Measured::net_bytes)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// A few lines; `cells` are the runs with fixed ages.
    pub(super) fn text(&self, cells: &[Cell]) -> String {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let (counted, resident) = (self.counted(), self.minutes.first());
        let mut text = format!(
            "{} --auto: {} of {} minutes within {:.2} MiB/min after the first {FIRST_MINUTES}; {:.0} MiB net of {:.0} MiB",
            self.workload,
            self.within(),
            counted.len(),
            mib(self.bound()),
            mib(self.net()),
            mib(resident.map_or(0.0, |minute| minute.resident_bytes)),
        );
        let _ = match self.best_fixed(cells) {
            Some((age, net)) => writeln!(
                text,
                "; best fixed age within the bound: {age} s, {:.0} MiB net",
                mib(net)
            ),
            None => writeln!(text, "; no fixed age was within the bound"),
        };
        let minutes = self.minutes.iter().map(|minute| {
            format!(
                "{:.2}/{:.0}",
                mib(minute.refault_bytes_per_min),
                mib(minute.net_bytes())
            )
        });
        let _ = writeln!(
            text,
            "  MiB back/net by minute: {}",
            minutes.collect::<Vec<_>>().join(" ")
        );
        text
    }

    pub(super) fn json(&self, cells: &[Cell]) -> Value {
        let best = self.best_fixed(cells);
        json!({
            "workload": self.workload,
            "working_set_bytes": self.working_set_bytes,
            "minutes": self.minutes,
            "within": self.within(),
            "counted": self.counted().len(),
            "net_bytes": self.net(),
            "best_fixed": best.map(|(age_s, net_bytes)| json!({ "age_s": age_s, "net_bytes": net_bytes })),
        })
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / f64::from(count.max(1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn measured(net: f64, back: f64) -> Measured {
        Measured {
            resident_bytes: 1000.0,
            left_bytes: net,
            zram_bytes: 0.0,
            refault_bytes_per_min: back,
        }
    }

    #[test]
    fn first_minutes_do_not_count() {
        let minutes = (0..10).map(|minute| match minute {
            0..5 => measured(0.0, 100.0),
            5..9 => measured(500.0, 1.0),
            _ => measured(300.0, 3.0),
        });
        let run = AutoRun {
            workload: "redis".to_owned(),
            working_set_bytes: 1000.0,
            minutes: minutes.collect(),
        };
        let cell = |age_s, net, back| Cell {
            workload: "redis".to_owned(),
            round: 1,
            age_s,
            measured: measured(net, back),
            predicted: Err(String::new()),
        };
        let cells = [cell(10, 900.0, 50.0), cell(30, 600.0, 1.0), cell(60, 400.0, 1.0)];
        let json = run.json(&cells);
        assert_eq!((&json["within"], &json["counted"]), (&4.into(), &5.into()));
        assert_eq!(
            (&json["net_bytes"], &json["best_fixed"]["age_s"]),
            (&460.0.into(), &30.into())
        );
        assert!(run.text(&cells[..1]).contains("no fixed age"));
    }
}
