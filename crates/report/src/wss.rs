//! Working-set size: how many resident bytes were accessed within a window before each snapshot.
//!
//! The windows are the edges of the idle ages: what has been idle for less than the window was accessed within it. A
//! window counts in a snapshot only when as much time has passed since the first complete scan pass, because nothing
//! is known to be idle for longer than that. It can be told at all only when no scan pass of those snapshots was longer.
//! Memory whose age is not known does not count and is reported apart. A percentile is
//! the nearest rank: `p` percent of the snapshots needed that much or less. Of long recordings, smallest and largest
//! are of all snapshots, the rest is of some that are spread evenly.

use serde::Serialize;
use thermo_engine::access_tables::NR_AGES;
use thermo_engine::budget::Method;
use thermo_recording::model::Record;
use thermo_units::Nanos;

use crate::ages::{self, Missing};
use crate::layout::Layout;
use crate::series::Series;
use crate::tables::SnapshotTables;
use crate::{Accumulator, Doubt};

mod draw;

/// The version of this report's JSON.
pub const SCHEMA: u32 = 2;

/// The number of windows: every edge of the idle ages but 0.
const NR_WINDOWS: usize = NR_AGES - 1;

/// Snapshots of which all windows are kept: 1 MiB.
const MOST_POINTS: usize = 8192;

/// Working-set sizes in the making.
#[derive(Debug, Clone)]
pub struct WssAccumulator {
    layout: Layout,
    doubt: Doubt,
    points: Series<Point>,
    windows: [State; NR_WINDOWS],
    /// When the first snapshot with a complete scan pass ended.
    first_pass_ns: Option<u64>,
    unknown: u64,
    is_sampled: bool,
}

/// The sizes in one snapshot.
#[derive(Debug, Clone, Copy)]
struct Point {
    time_ns: u64,
    resident: u64,
    /// The scan pass, which is how exact it is.
    pass: Nanos,
    /// Bytes accessed within each window.
    accessed: [u64; NR_WINDOWS],
}

/// One window, over the snapshots that count for it: those late enough whose scan pass was no longer than the window.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    snapshots: u64,
    min: u64,
    max: u64,
    /// The shortest pass of those late enough.
    pass: Option<Nanos>,
}

impl Default for WssAccumulator {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            doubt: Doubt::default(),
            points: Series::of_most(MOST_POINTS),
            windows: [State::default(); NR_WINDOWS],
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
        if let Some(snapshot) = self.doubt.add(record) {
            let tables = SnapshotTables::new(snapshot, &self.layout);
            tables.warn(&mut self.doubt);
            self.add_tables(snapshot.time_ns, &tables);
        }
    }

    fn finish(mut self) -> Wss {
        if self.unknown > 0 {
            let unknown = thermo_units::Bytes(self.unknown);
            self.doubt.warn(&format!(
                "up to {unknown} could not be judged and are not in the working set."
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
            resident_bytes: Spread::of(&mut resident),
            unknown_bytes: self.unknown,
            basis: self.doubt,
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
        let watched = Nanos(time_ns.saturating_sub(first_pass_ns));
        for (nth, &window_s) in ages::windows().iter().enumerate() {
            let window = Nanos::secs(window_s);
            if window <= watched {
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

    /// One window, or why it cannot be told.
    fn window(&self, nth: usize, window_s: u64, points: &[Point]) -> Result<Window, String> {
        let state = self.windows[nth];
        let first_pass_ns = self.first_pass_ns.ok_or("no scan pass was complete")?;
        let watched = |time_ns: u64| Nanos(time_ns.saturating_sub(first_pass_ns));
        ages::can_tell(window_s, watched(self.doubt.end_ns), Nanos::ZERO)?;
        let window = Nanos::secs(window_s);
        if let Some(pass) = state.pass.filter(|pass| *pass > window) {
            return Err(format!("the shortest scan pass took {pass}"));
        }
        let counts = |point: &&Point| watched(point.time_ns) >= window && point.pass <= window;
        let counted: Vec<&Point> = points.iter().filter(counts).collect();
        let mut bytes: Vec<u64> = counted.iter().map(|point| point.accessed[nth]).collect();
        let mut resident: Vec<u64> = counted.iter().map(|point| point.resident).collect();
        let mut bytes = Spread::of(&mut bytes).ok_or("no snapshot is as late")?;
        (bytes.min, bytes.max) = (state.min, state.max);
        // No snapshot has more accessed than resident, so no percentile has either.
        let resident = Spread::of(&mut resident).map_or(0, |resident| resident.p50);
        let course = counted.iter().map(|point| (point.time_ns, point.accessed[nth]));
        Ok(Window {
            window_s,
            snapshots: state.snapshots,
            bytes,
            share_of_resident: bytes.p50 as f64 / resident.max(1) as f64,
            over_time: course.collect(),
        })
    }
}

impl State {
    fn add(&mut self, bytes: u64, pass: Nanos, window: Nanos) {
        self.pass = Some(self.pass.map_or(pass, |shortest| shortest.min(pass)));
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

/// Sizes over many snapshots, as percentiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Spread {
    /// Smallest.
    pub min: u64,
    /// A quarter of the snapshots had no more.
    pub p25: u64,
    /// Half of them had no more.
    pub p50: u64,
    /// Three quarters had no more.
    pub p75: u64,
    /// Largest.
    pub max: u64,
}

impl Spread {
    /// The percentiles of `sizes`, if there are any.
    fn of(sizes: &mut [u64]) -> Option<Self> {
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
    /// `scan`, or `sampling` when at least one target was sampled at some time.
    pub method: &'static str,
    /// Each window that can be told, ascending.
    pub windows: Vec<Window>,
    /// Windows that cannot be told, and why.
    pub missing: Vec<Missing>,
    /// Resident bytes of all targets, accessed or not; `None` when there was no snapshot.
    pub resident_bytes: Option<Spread>,
    /// The most bytes that could not be judged after the first complete scan pass; they are not in the working set.
    pub unknown_bytes: u64,
    /// What it stands on.
    pub basis: Doubt,
}

/// The working set of one window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    /// Its length in seconds.
    pub window_s: u64,
    /// Snapshots that count: those at least that long after the first complete scan pass.
    pub snapshots: u64,
    /// Bytes accessed within it.
    pub bytes: Spread,
    /// The median as a share of the median resident bytes, 0 to 1.
    pub share_of_resident: f64,
    /// Bytes of some snapshots, evenly spread, by their time.
    #[serde(skip)]
    pub over_time: Vec<(u64, u64)>,
}

impl Wss {
    /// The report of one window alone.
    ///
    /// # Errors
    /// A sentence that says why the recording cannot tell that window.
    pub fn only(mut self, window_s: u64) -> Result<Self, String> {
        self.windows.retain(|window| window.window_s == window_s);
        self.missing.retain(|missing| missing.seconds == window_s);
        match self.missing.first() {
            None => Ok(self),
            Some(missing) => Err(format!(
                "the recording cannot tell the working set of {}: {}",
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
    fn percentiles_are_nearest_ranks() {
        let sorted: Vec<u64> = (1..=10).collect();
        let ranks = [0, 1, 25, 50, 75, 99, 100].map(|percent| nearest_rank(&sorted, percent));
        assert_eq!(ranks, [1, 1, 3, 5, 8, 10, 10].map(Some));
        assert_eq!(nearest_rank(&[], 50), None);
    }
}
