//! Working-set size: resident bytes accessed within a window before each snapshot.
//!
//! The windows are the edges of the idle ages: memory that has been idle for less than the window was
//! accessed within it. A window counts in a snapshot only if the first complete scan pass ended at least that
//! long before, because no known idle age is longer. Snapshots whose scan pass was longer than the window do
//! not count.
//!
//! Memory of unknown age does not count, and is reported separately. Percentiles are nearest ranks: `p`
//! percent of the snapshots had that size or less. In long recordings, minimum and maximum cover all
//! snapshots; the other percentiles cover an evenly spaced subset.

use serde::Serialize;
use thermo_engine::access_tables::NR_AGES;
use thermo_engine::budget::Method;
use thermo_recording::model::Record;
use thermo_units::Nanos;

use crate::ages::{self, Missing};
use crate::layout::Layout;
use crate::series::Series;
use crate::tables::SnapshotTables;
use crate::{Accumulator, Basis};

mod draw;

/// Schema version of this report's JSON.
pub const SCHEMA: u32 = 2;

/// Number of windows: all edges of the idle ages except 0.
const NR_WINDOWS: usize = NR_AGES - 1;

/// Maximum number of snapshots kept with all their windows; about 1 MiB.
const MAX_POINTS: usize = 8192;

/// Builds a [`Wss`] report.
#[derive(Debug, Clone)]
pub struct WssAccumulator {
    layout: Layout,
    basis: Basis,
    points: Series<Point>,
    windows: [WindowState; NR_WINDOWS],
    /// End of the first snapshot with a complete scan pass.
    first_pass_ns: Option<u64>,
    unknown: u64,
    is_sampled: bool,
}

/// The sizes in one snapshot.
#[derive(Debug, Clone, Copy)]
struct Point {
    time_ns: u64,
    resident: u64,
    /// The longest scan pass: the resolution of `accessed`.
    pass: Nanos,
    /// Bytes accessed within each window.
    accessed: [u64; NR_WINDOWS],
}

/// One window over the snapshots that count for it: at least the window after the first complete pass, and
/// with a scan pass no longer than the window.
#[derive(Debug, Clone, Copy, Default)]
struct WindowState {
    snapshots: u64,
    min: u64,
    max: u64,
    /// The shortest pass of snapshots at least the window after the first complete pass.
    shortest_pass: Option<Nanos>,
}

impl Default for WssAccumulator {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            basis: Basis::default(),
            points: Series::with_limit(MAX_POINTS),
            windows: [WindowState::default(); NR_WINDOWS],
            first_pass_ns: None,
            unknown: 0,
            is_sampled: false,
        }
    }
}

impl Accumulator for WssAccumulator {
    type Report = Wss;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Some(snapshot) = self.basis.add(record) {
            let tables = SnapshotTables::new(snapshot, &self.layout);
            tables.add_warnings(&mut self.basis);
            self.add_tables(snapshot.time_ns, &tables);
        }
    }

    fn finish(mut self) -> Wss {
        if self.unknown > 0 {
            let unknown = thermo_units::Bytes(self.unknown);
            self.basis.warn(&format!(
                "the working set does not include up to {unknown} whose idle age is unknown."
            ));
        }
        let points = std::mem::take(&mut self.points).into_points();
        let (mut windows, mut missing) = (Vec::new(), Vec::new());
        for (nth, &window_s) in ages::windows().iter().enumerate() {
            match self.window(nth, window_s, &points) {
                Ok(window) => windows.push(window),
                Err(why) => missing.push(Missing {
                    seconds: window_s,
                    why,
                }),
            }
        }
        let method = if self.is_sampled {
            Method::Sampling
        } else {
            Method::Scan
        };
        let mut resident: Vec<u64> = points.iter().map(|point| point.resident).collect();
        Wss {
            schema: SCHEMA,
            method: method.name(),
            windows,
            missing,
            resident_bytes: Spread::new(&mut resident),
            unknown_bytes: self.unknown,
            basis: self.basis,
        }
    }
}

impl WssAccumulator {
    fn add_tables(&mut self, time_ns: u64, tables: &SnapshotTables) {
        let sum = tables.sum();
        self.is_sampled |= sum.method == Method::Sampling;
        let Some(pass) = tables.pass() else {
            return;
        };
        self.unknown = self.unknown.max(sum.unknown().0);
        let mut accessed = [0; NR_WINDOWS];
        let mut within = 0;
        for (window, bytes) in accessed.iter_mut().zip(sum.ages()) {
            within += bytes.0;
            *window = within;
        }
        let first_pass_ns = *self.first_pass_ns.get_or_insert(time_ns);
        let monitored = Nanos(time_ns.saturating_sub(first_pass_ns));
        for (nth, &window_s) in ages::windows().iter().enumerate() {
            let window = Nanos::secs(window_s);
            if window <= monitored {
                self.windows[nth].add(accessed[nth], pass, window);
            }
        }
        let resident = sum.resident().0;
        self.points.push(Point {
            time_ns,
            resident,
            pass,
            accessed,
        });
    }

    /// The result of window number `nth`, or the reason why it has none.
    fn window(&self, nth: usize, window_s: u64, points: &[Point]) -> Result<Window, String> {
        let state = self.windows[nth];
        let first_pass_ns = self.first_pass_ns.ok_or("no scan pass was complete")?;
        let monitored = |time_ns: u64| Nanos(time_ns.saturating_sub(first_pass_ns));
        ages::check_resolvable(window_s, monitored(self.basis.end_ns), Nanos::ZERO)?;
        let window = Nanos::secs(window_s);
        if let Some(pass) = state.shortest_pass.filter(|pass| *pass > window) {
            return Err(format!("the shortest scan pass took {pass}"));
        }
        let counts = |point: &&Point| monitored(point.time_ns) >= window && point.pass <= window;
        let counted: Vec<&Point> = points.iter().filter(counts).collect();
        let mut bytes: Vec<u64> = counted.iter().map(|point| point.accessed[nth]).collect();
        let mut resident: Vec<u64> = counted.iter().map(|point| point.resident).collect();
        let mut bytes = Spread::new(&mut bytes).ok_or("no snapshot is late enough")?;
        (bytes.min, bytes.max) = (state.min, state.max);
        // The share never exceeds 1: in each snapshot accessed <= resident, so the same holds for the
        // medians.
        let resident = Spread::new(&mut resident).map_or(0, |resident| resident.p50);
        let over_time = counted.iter().map(|point| (point.time_ns, point.accessed[nth]));
        Ok(Window {
            window_s,
            snapshots: state.snapshots,
            bytes,
            share_of_resident: bytes.p50 as f64 / resident.max(1) as f64,
            over_time: over_time.collect(),
        })
    }
}

impl WindowState {
    fn add(&mut self, bytes: u64, pass: Nanos, window: Nanos) {
        let shortest = self.shortest_pass.map_or(pass, |shortest| shortest.min(pass));
        self.shortest_pass = Some(shortest);
        if pass > window {
            return;
        }
        self.min = if self.snapshots == 0 {
            bytes
        } else {
            self.min.min(bytes)
        };
        self.max = self.max.max(bytes);
        self.snapshots += 1;
    }
}

/// Percentiles of a size over snapshots, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Spread {
    /// Minimum.
    pub min: u64,
    /// 25th percentile.
    pub p25: u64,
    /// Median.
    pub p50: u64,
    /// 75th percentile.
    pub p75: u64,
    /// Maximum.
    pub max: u64,
}

impl Spread {
    /// The percentiles of `sizes`; sorts them. `None` if there are no sizes.
    fn new(sizes: &mut [u64]) -> Option<Self> {
        sizes.sort_unstable();
        let rank = |percent| nearest_rank(sizes, percent);
        Some(Self {
            min: rank(0)?,
            p25: rank(25)?,
            p50: rank(50)?,
            p75: rank(75)?,
            max: rank(100)?,
        })
    }
}

fn nearest_rank(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Working-set sizes of a recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wss {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `scan`, or `sampling` if at least one target was sampled at some time.
    pub method: &'static str,
    /// Windows with a result, in ascending order.
    pub windows: Vec<Window>,
    /// Windows without a result.
    pub missing: Vec<Missing>,
    /// Resident bytes of all targets, accessed or not; `None` if there was no snapshot.
    pub resident_bytes: Option<Spread>,
    /// Maximum bytes of unknown idle age after the first complete scan pass. The working set does not include
    /// them.
    pub unknown_bytes: u64,
    /// The data behind the report.
    pub basis: Basis,
}

/// The working set of one window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    /// Length of the window in seconds.
    pub window_s: u64,
    /// Number of snapshots that count for the window.
    pub snapshots: u64,
    /// Bytes accessed within the window.
    pub bytes: Spread,
    /// The median as a share of the median resident bytes, 0 to 1.
    pub share_of_resident: f64,
    /// Time and bytes of an evenly spaced subset of the snapshots.
    #[serde(skip)]
    pub over_time: Vec<(u64, u64)>,
}

impl Wss {
    /// The report reduced to one window.
    ///
    /// # Errors
    /// A sentence with the reason why the window has no result.
    pub fn only(mut self, window_s: u64) -> Result<Self, String> {
        self.windows.retain(|window| window.window_s == window_s);
        self.missing.retain(|missing| missing.seconds == window_s);
        match self.missing.first() {
            None => Ok(self),
            Some(missing) => Err(format!(
                "the recording has no working set for a window of {}: {}",
                ages::text(window_s),
                missing.why
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank_matches_definition() {
        let sorted: Vec<u64> = (1..=10).collect();
        let ranks = [0, 1, 25, 50, 75, 99, 100].map(|percent| nearest_rank(&sorted, percent));
        assert_eq!(ranks, [1, 1, 3, 5, 8, 10, 10].map(Some));
        assert_eq!(nearest_rank(&[], 50), None);
    }
}
