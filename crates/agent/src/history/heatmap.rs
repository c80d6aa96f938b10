//! How hot each part of a target's memory was over time.

use thermo_report::heatmap::{self, FittedRow, HeatmapAccumulator};
use thermo_units::Nanos;

use super::{Past, Span};
use crate::api::{Heatmap, HeatmapRow, Period, Refusal, SCHEMA, UnixMillis};

impl Past {
    /// The heatmap of `period`. Columns cover the time from the first snapshot in it to the last. Without an
    /// end, the period ends at `now_ms`.
    ///
    /// # Errors
    /// There is no such target, or the history cannot be read.
    pub fn heatmap(&self, period: &Period, now_ms: UnixMillis) -> Result<Heatmap, Refusal> {
        let span = Span::new(period, now_ms)?;
        let map = self.report(period, span, false, HeatmapAccumulator::default())?;
        let columns = span.columns.min(map.columns);
        let begin = |column: usize| {
            let first = column * map.columns / columns;
            (map.start_ns + first as u64 * map.column_ns) / Nanos::millis(1).0
        };
        Ok(Heatmap {
            schema: SCHEMA,
            times_ms: (0..columns).map(begin).collect(),
            rows: map
                .fitted(columns, span.rows)
                .into_iter()
                .map(HeatmapRow::from)
                .collect(),
        })
    }
}

impl From<FittedRow> for HeatmapRow {
    fn from(row: FittedRow) -> Self {
        Self {
            // Physical memory has no process.
            pid: row.pid.unwrap_or(0),
            start: format!("{:#x}", row.start),
            end: format!("{:#x}", row.end),
            name: row.name,
            heat: row.rates.into_iter().map(heat).collect(),
        }
    }
}

/// Percent of a rate in thousandths; -1 if it is not known. A low rate does not become 0, which means no
/// access at all.
fn heat(rate: i16) -> i8 {
    match rate {
        heatmap::ABSENT | heatmap::UNKNOWN => -1,
        rate => i8::try_from((i32::from(rate) + 9) / 10).unwrap_or(100).min(100),
    }
}
