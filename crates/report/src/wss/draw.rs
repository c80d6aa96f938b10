//! The working set as text, CSV, SVG, PNG and HTML.

use thermo_units::{Bytes, Nanos};

use super::{Window, Wss};
use crate::ages;
use crate::picture::{LineChart, PictureError};
use crate::style::{Style, Table, csv_text, percent};

/// Windows with a line in pictures, besides the shortest window.
const DRAWN_WINDOWS_S: [u64; 2] = [10, 60];

impl Wss {
    /// A table of windows with bars, then the shortest window over time.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        if self.basis.snapshots == 0 {
            return self.basis.no_data_text();
        }
        let mut text = self.rows(style);
        if !self.windows.is_empty() {
            text.push_str(&ages::missing_text(&self.missing));
        }
        if let Some(shortest) = self.windows.first() {
            let width = style.width.saturating_sub(24).clamp(8, 120);
            let line = style.sparkline(&crate::series::binned(&shortest.over_time, width));
            let window = ages::text(shortest.window_s);
            text.push_str(&format!("over time ({window}): {line}\n"));
        }
        let unknown = Bytes(self.unknown_bytes);
        text.push_str(&format!("Unknown: {unknown} at most. Method: {}.\n", self.method));
        text + &self.basis.text()
    }

    /// A title and a row with a bar for each window, or the reasons why there are no windows.
    pub(crate) fn rows(&self, style: &Style) -> String {
        let title = format!(
            "Working set: memory accessed within a window, {}\n",
            self.basis.summary()
        );
        if self.windows.is_empty() {
            return title + &ages::missing_text(&self.missing);
        }
        let width = style.width.saturating_sub(56).clamp(6, 60);
        let mut table = Table::new(1, &["window", "median", "min", "max", "of resident", ""]);
        for window in &self.windows {
            let sizes = [window.bytes.p50, window.bytes.min, window.bytes.max];
            let [median, min, max] = sizes.map(|bytes| Bytes(bytes).to_string());
            table.row([
                ages::text(window.window_s),
                median,
                min,
                max,
                percent(window.share_of_resident),
                style.bar(window.share_of_resident, width),
            ]);
        }
        title + &table.text()
    }

    /// `window_s,snapshots,min,p25,p50,p75,max,share_of_resident`.
    #[must_use]
    pub fn csv(&self) -> String {
        let row = |window: &Window| {
            let all = window.bytes;
            let [min, p25, p50, p75, max] =
                [all.min, all.p25, all.p50, all.p75, all.max].map(|bytes| bytes.to_string());
            let share = format!("{:.6}", window.share_of_resident);
            let [seconds, snapshots] = [window.window_s, window.snapshots].map(|n| n.to_string());
            [seconds, snapshots, min, p25, p50, p75, max, share]
        };
        csv_text(
            [
                "window_s",
                "snapshots",
                "min",
                "p25",
                "p50",
                "p75",
                "max",
                "share_of_resident",
            ],
            self.windows.iter().map(row),
        )
    }

    /// A chart of the working set over time as an SVG document, with a line for some windows.
    #[must_use]
    pub fn svg(&self) -> String {
        self.chart().scene().svg()
    }

    /// The chart as a PNG file.
    ///
    /// # Errors
    /// [`PictureError`] when it cannot be encoded.
    pub fn png(&self) -> Result<Vec<u8>, PictureError> {
        self.chart().scene().png()
    }

    /// The chart as an HTML page, with the table below.
    #[must_use]
    pub fn html(&self) -> String {
        let table = self.text(&Style {
            width: 100,
            ..Style::default()
        });
        crate::picture::page("Working set", &self.svg(), &table)
    }

    fn chart(&self) -> LineChart {
        let start = self.basis.start_ns;
        let seconds =
            |(time, bytes): &(u64, u64)| (Nanos(time.saturating_sub(start)).as_secs_f64(), *bytes as f64);
        let shortest = self.windows.first().map(|window| window.window_s);
        let is_drawn = |window: &&Window| {
            Some(window.window_s) == shortest || DRAWN_WINDOWS_S.contains(&window.window_s)
        };
        let line = |window: &Window| {
            let points = window.over_time.iter().map(seconds).collect();
            (ages::text(window.window_s), points)
        };
        LineChart {
            title: format!(
                "Working set: memory accessed within a window ({})",
                self.basis.summary()
            ),
            lines: self.windows.iter().filter(is_drawn).map(line).collect(),
            empty: match self.basis.snapshots {
                0 => self.basis.no_data(),
                _ => ages::missing_text(&self.missing).trim_end().to_owned(),
            },
        }
    }
}
