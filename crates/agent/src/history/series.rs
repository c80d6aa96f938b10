//! A target over time.

use thermo_recording::model::{Record, Snapshot};
use thermo_report::tables::SnapshotTables;
use thermo_report::{Accumulator, Layout};
use thermo_units::Nanos;

use super::{Past, Span};
use crate::api::{AgeBytes, Period, Point, Refusal, SCHEMA, Series, UnixMillis};

impl Past {
    /// A point for each column of `period` that has a snapshot: the last one of the column. Without an end,
    /// the period ends at `now_ms`.
    ///
    /// # Errors
    /// There is no such target, or the history cannot be read.
    pub fn series(&self, period: &Period, now_ms: UnixMillis) -> Result<Series, Refusal> {
        let span = Span::new(period, now_ms)?;
        let points = self.report(period, span, true, Points::new(span))?;
        Ok(Series {
            schema: SCHEMA,
            points,
        })
    }
}

/// Builds the points.
struct Points {
    span: Span,
    layout: Layout,
    /// With their columns.
    points: Vec<(usize, Point)>,
}

impl Points {
    fn new(span: Span) -> Self {
        Self {
            span,
            layout: Layout::default(),
            points: Vec::new(),
        }
    }

    fn point(&self, snapshot: &Snapshot) -> Point {
        let tables = SnapshotTables::new(snapshot, &self.layout).sum();
        let sizes = snapshot
            .targets
            .iter()
            .filter_map(|target| self.layout.footprint(target.id));
        Point {
            time_ms: snapshot.time_ns / Nanos::millis(1).0,
            resident_bytes: tables.resident().0,
            swap_bytes: sizes.map(|size| size.swap).fold(0, u64::saturating_add),
            ages: AgeBytes::rows(&tables.ages()),
        }
    }
}

impl Accumulator for Points {
    type Report = Vec<Point>;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Record::Snapshot(snapshot) = record {
            let point = (self.span.column(Nanos(snapshot.time_ns)), self.point(snapshot));
            // Nothing was scanned yet: the agent has just started, or the program.
            if point.1.resident_bytes == 0 {
                return;
            }
            match self.points.last_mut().filter(|last| last.0 == point.0) {
                Some(last) => *last = point,
                None => self.points.push(point),
            }
        }
    }

    fn finish(self) -> Vec<Point> {
        self.points.into_iter().map(|(_, point)| point).collect()
    }
}
