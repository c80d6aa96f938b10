//! The forecast as one HTML page: two charts over time, and the text.

use thermo_report::picture::{LineChart, page};

use crate::forecast::{FileForecast, Forecast, OverTime};

/// Points of a line of refaults.
const REFAULT_POINTS: usize = 24;

impl Forecast {
    /// The page. It loads no other resources.
    #[must_use]
    pub fn html(&self) -> String {
        let left = self.chart("Memory that has left", left_points);
        let refaults = self.chart("Refaults per minute", refault_points);
        page("Forecast", &(left.svg() + &refaults.svg()), &self.text())
    }

    fn chart(&self, title: &str, points: fn(&[OverTime]) -> Vec<(f64, f64)>) -> LineChart {
        let line = |file: &FileForecast| (file.short_name().to_owned(), points(&file.over_time));
        LineChart {
            title: format!("{title} ({})", self.basis.summary()),
            lines: self.files.iter().map(line).collect(),
            empty: "The recording is too short.".to_owned(),
        }
    }
}

fn left_points(over_time: &[OverTime]) -> Vec<(f64, f64)> {
    let points = over_time.iter();
    points
        .map(|point| (point.time_s, point.out_bytes as f64))
        .collect()
}

/// Rates over longer parts: a burst within a second is no rate per minute.
fn refault_points(over_time: &[OverTime]) -> Vec<(f64, f64)> {
    let mut begin = 0.0;
    let rate = |part: &[OverTime]| {
        let end = part.last().map_or(begin, |point| point.time_s);
        let bytes: u64 = part.iter().map(|point| point.refault_bytes).sum();
        let minutes = (end - begin) / 60.0;
        begin = end;
        (end, bytes as f64 / minutes.max(f64::MIN_POSITIVE))
    };
    let chunk = over_time.len().div_ceil(REFAULT_POINTS).max(1);
    over_time.chunks(chunk).map(rate).collect()
}
