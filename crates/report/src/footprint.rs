//! Memory sizes of the targets over time: virtual, resident and swapped.

use std::collections::BTreeMap;

use serde::Serialize;
use thermo_recording::model::{Footprint, Record, target_name};
use thermo_units::Bytes;

use crate::series::{Series, binned};
use crate::style::{Style, Table, csv_text};
use crate::{Accumulator, SCHEMA};

/// Maximum number of targets with sizes over time; of further targets only minimum, mean and maximum are
/// kept.
const MAX_SERIES: usize = 64;

/// Builds a [`Footprints`] report.
#[derive(Debug, Clone, Default)]
pub struct FootprintAccumulator {
    targets: BTreeMap<u32, TargetState>,
}

#[derive(Debug, Clone, Default)]
struct TargetState {
    pid: Option<u32>,
    series: Series<Footprint>,
    count: u64,
    stats: [Stat; 3],
}

/// Statistics of one size over the recording, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Stat {
    /// Minimum.
    pub min: u64,
    /// Mean of all readings.
    pub mean: f64,
    /// Maximum.
    pub max: u64,
    /// Last reading.
    pub last: u64,
}

impl Accumulator for FootprintAccumulator {
    type Report = Footprints;

    fn add(&mut self, record: &Record) {
        match record {
            Record::Snapshot(snapshot) => {
                for target in &snapshot.targets {
                    if let Some(state) = self.targets.get_mut(&target.id) {
                        state.pid = target.pid;
                    }
                }
            }
            Record::Footprint(footprint) => {
                let keep_series = self.targets.len() < MAX_SERIES;
                self.targets
                    .entry(footprint.target)
                    .or_default()
                    .add(footprint, keep_series);
            }
            _ => {}
        }
    }

    fn finish(self) -> Footprints {
        let target = |(id, state): (u32, TargetState)| TargetFootprint {
            target: id,
            pid: state.pid,
            readings: state.count,
            vsz: state.stats[0],
            rss: state.stats[1],
            swap: state.stats[2],
            over_time: state.series.into_points().into_iter().map(Point::from).collect(),
        };
        Footprints {
            schema: SCHEMA,
            targets: self.targets.into_iter().map(target).collect(),
        }
    }
}

impl TargetState {
    fn add(&mut self, footprint: &Footprint, keep_series: bool) {
        self.count += 1;
        for (stat, value) in self
            .stats
            .iter_mut()
            .zip([footprint.vsz, footprint.rss, footprint.swap])
        {
            stat.add(value, self.count);
        }
        if keep_series || self.series.last().is_some() {
            self.series.push(*footprint);
        }
    }
}

impl Stat {
    fn add(&mut self, value: u64, count: u64) {
        self.min = if count == 1 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.mean += (value as f64 - self.mean) / count as f64;
        self.last = value;
    }
}

/// The footprints of all targets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Footprints {
    /// [`SCHEMA`].
    pub schema: u32,
    /// One entry for each target.
    pub targets: Vec<TargetFootprint>,
}

/// The footprint of a target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetFootprint {
    /// Target id.
    pub target: u32,
    /// Process id; `None` for physical memory.
    pub pid: Option<u32>,
    /// Number of readings.
    pub readings: u64,
    /// Virtual size.
    pub vsz: Stat,
    /// Resident size.
    pub rss: Stat,
    /// Swapped size.
    pub swap: Stat,
    /// Sizes over time; a subset of the readings if there are many.
    pub over_time: Vec<Point>,
}

/// One reading; sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Point {
    /// Time of the reading.
    pub time_ns: u64,
    /// Virtual size.
    pub vsz: u64,
    /// Resident size.
    pub rss: u64,
    /// Swapped size.
    pub swap: u64,
}

impl From<Footprint> for Point {
    fn from(from: Footprint) -> Self {
        Self {
            time_ns: from.time_ns,
            vsz: from.vsz,
            rss: from.rss,
            swap: from.swap,
        }
    }
}

impl Footprints {
    /// A table and a sparkline of the resident size for each target.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        if self.targets.is_empty() {
            return "The recording has no memory sizes of its targets.\n".to_owned();
        }
        let texts: Vec<String> = self.targets.iter().map(|target| target.text(style)).collect();
        texts.join("\n")
    }

    /// `time_ns,pid,vsz,rss,swap`.
    #[must_use]
    pub fn csv(&self) -> String {
        let of_target = |target: &TargetFootprint| {
            let pid = target.pid.map(|pid| pid.to_string()).unwrap_or_default();
            let row = move |p: &Point| {
                let [time, vsz, rss, swap] = [p.time_ns, p.vsz, p.rss, p.swap].map(|n| n.to_string());
                [time, pid.clone(), vsz, rss, swap]
            };
            target.over_time.iter().map(row).collect::<Vec<_>>()
        };
        csv_text(
            ["time_ns", "pid", "vsz", "rss", "swap"],
            self.targets.iter().flat_map(of_target),
        )
    }
}

impl TargetFootprint {
    fn text(&self, style: &Style) -> String {
        let mut table = Table::new(1, &["", "min", "mean", "max", "last"]);
        for (name, stat) in [
            ("  virtual", self.vsz),
            ("  resident", self.rss),
            ("  swapped", self.swap),
        ] {
            let mean = stat.mean.round() as u64;
            let sizes = [stat.min, mean, stat.max, stat.last].map(|bytes| Bytes(bytes).to_string());
            table.row(std::iter::once(name.to_owned()).chain(sizes));
        }
        // Recordings of other programs have no footprints.
        let name = target_name(false, self.target, self.pid);
        let plural = if self.readings == 1 { "" } else { "s" };
        let mut text = format!("{name}, {} reading{plural}\n{}", self.readings, table.text());
        if self.over_time.len() > 1 {
            let rss: Vec<(u64, u64)> = self.over_time.iter().map(|p| (p.time_ns, p.rss)).collect();
            let line = style.sparkline(&binned(&rss, style.width.saturating_sub(24).clamp(8, 80)));
            text.push_str(&format!("  resident over time: {line}\n"));
        }
        text
    }
}
