//! The heatmap of a target, with its idle memory over the same time above.
//!
//! Time runs to the right, addresses upward, as in `thermo report heatmap`. A line has two rows of the
//! heatmap, drawn as half blocks, where the terminal has colours; else one, drawn as a shade.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use thermo_agent::api::{Heatmap, HeatmapRow, Point};
use thermo_report::ages;
use thermo_report::layout::short_name;

use super::text;
use super::theme::Theme;
use crate::model::{Detail, Model, Playback, idle_from};

/// Columns of the names of mappings, with a space on both sides.
const LABELS: u16 = 18;
/// Characters of the line of idle memory.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Idle memory, the map, its time axis, a legend.
struct Parts {
    idle: Rect,
    map: Rect,
    axis: Rect,
    legend: Rect,
}

impl Parts {
    fn new(area: Rect) -> Self {
        let [idle, map, axis, legend] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
            Constraint::Length(1),
        ])
        .areas(area);
        Self {
            idle,
            map,
            axis,
            legend,
        }
    }
}

/// Columns and rows that `area` has room for.
pub(super) fn cells(theme: Theme, area: Rect) -> (usize, usize) {
    let map = right_of_labels(Parts::new(area).map);
    let rows_per_line = if theme.has_half_blocks() { 2 } else { 1 };
    (usize::from(map.width), usize::from(map.height) * rows_per_line)
}

fn right_of_labels(area: Rect) -> Rect {
    let labels = LABELS.min(area.width);
    Rect {
        x: area.x + labels,
        width: area.width - labels,
        ..area
    }
}

/// Draws the heatmap.
pub(super) fn draw(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let Some(detail) = model
        .detail
        .as_ref()
        .filter(|detail| Some(&detail.target) == model.selected_id())
    else {
        return Line::styled(" reading the history…", theme.dim()).render(area, buffer);
    };
    let map = match &detail.heatmap {
        Ok(map) if map.rows.is_empty() => {
            return nothing("there is no history of this target yet", theme, area, buffer);
        }
        Ok(map) => map,
        Err(why) => return nothing(&text::line(why), theme, area, buffer),
    };
    let parts = Parts::new(area);
    draw_idle(model, detail, map, theme, parts.idle, buffer);
    draw_map(map, theme, parts.map, buffer);
    draw_axis(map, model.playback.as_ref(), theme, parts.axis, buffer);
    draw_legend(theme, parts.legend, buffer);
}

fn nothing(why: &str, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let text = text::fit(why, usize::from(area.width).saturating_sub(2));
    Line::styled(format!(" {text}"), theme.dim()).render(area, buffer);
}

fn draw_idle(model: &Model, detail: &Detail, map: &Heatmap, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let age = model.age.seconds();
    Line::styled(format!(" idle ≥ {}", ages::text(age)), theme.dim()).render(area, buffer);
    let right = right_of_labels(area);
    let line = idle_line(&detail.points, map, age, usize::from(right.width));
    Line::styled(line, theme.colour(33)).render(right, buffer);
}

/// Idle memory as a share of the largest resident size, a character for each column of the map.
fn idle_line(points: &[Point], map: &Heatmap, age_s: u64, width: usize) -> String {
    let largest = points
        .iter()
        .map(|point| point.resident_bytes)
        .max()
        .unwrap_or(0)
        .max(1);
    let level = |column: usize| {
        let time = map.times_ms.get(column * map.times_ms.len() / width.max(1))?;
        let next = points.partition_point(|point| point.time_ms <= *time);
        let point = points.get(next.saturating_sub(1))?;
        let share = idle_from(&point.ages, age_s) as f64 / largest as f64;
        Some(LEVELS[((share * 8.0) as usize).min(7)])
    };
    (0..width).map(|column| level(column).unwrap_or(' ')).collect()
}

fn draw_map(map: &Heatmap, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let right = right_of_labels(area);
    let (lines, columns) = (usize::from(area.height), usize::from(right.width));
    let rows_per_line = if theme.has_half_blocks() { 2 } else { 1 };
    // A map of few rows is drawn with higher rows, so that it fills the area.
    let rows = lines * rows_per_line;
    let mut name_above = None;
    for (line, y) in (0..lines).zip(area.y..) {
        let row = |nth: usize| rows_at(&map.rows, line * rows_per_line + nth, rows);
        let upper = row(0);
        let name = upper.last().map(|row| row.name.as_str());
        if let Some(name) = name.filter(|name| name_above != Some(*name)) {
            let name = text::fit(&text::line(short_name(name)), usize::from(LABELS) - 2);
            buffer.set_string(area.x + 1, y, name, theme.dim());
        }
        name_above = name;
        for (column, x) in (0..columns).zip(right.x..) {
            let heat = |nth: usize| mean_heat(row(nth), column, columns);
            let cell = &mut buffer[(x, y)];
            if theme.has_half_blocks() {
                let style = Style::new()
                    .fg(theme.heat_colour(heat(0)))
                    .bg(theme.heat_colour(heat(1)));
                // Without memory in the upper half, only the lower half has a colour.
                match (heat(0), heat(1)) {
                    (..0, ..0) => cell.set_char(' '),
                    (..0, lower) => cell
                        .set_char('▄')
                        .set_style(Style::new().fg(theme.heat_colour(lower))),
                    _ => cell.set_char('▀').set_style(style),
                };
            } else {
                cell.set_char(Theme::heat_shade(heat(0)));
            }
        }
    }
}

/// The rows of the map in row `nth` of `count` from the top, which has the highest addresses.
fn rows_at(rows: &[HeatmapRow], nth: usize, count: usize) -> &[HeatmapRow] {
    let from_bottom = count - 1 - nth;
    let low = from_bottom * rows.len() / count;
    let high = ((from_bottom + 1) * rows.len() / count).max(low + 1);
    rows.get(low..high.min(rows.len())).unwrap_or_default()
}

/// The mean of the known cells in column `column` of `columns`; -1 if none is known.
fn mean_heat(rows: &[HeatmapRow], column: usize, columns: usize) -> i8 {
    let (mut sum, mut known) = (0_i32, 0_i32);
    for row in rows {
        let low = column * row.heat.len() / columns;
        let high = ((column + 1) * row.heat.len() / columns).max(low + 1);
        for heat in row.heat.get(low..high.min(row.heat.len())).unwrap_or_default() {
            if *heat >= 0 {
                sum += i32::from(*heat);
                known += 1;
            }
        }
    }
    if known == 0 {
        return -1;
    }
    // A low heat must not round to 0: 0 means no access at all.
    i8::try_from((sum / known).max(i32::from(sum > 0))).unwrap_or(100)
}

/// Begin and end of the map, and in a replay the moment that is shown.
fn draw_axis(map: &Heatmap, playback: Option<&Playback>, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let right = right_of_labels(area);
    let (Some(first), Some(last)) = (map.times_ms.first(), map.times_ms.last()) else {
        return;
    };
    // The times are those at which columns begin.
    let column_ms = (last - first) / (map.times_ms.len() as u64 - 1).max(1);
    let end = last + column_ms;
    let (begin, end_text) = (theme.clock(*first), theme.clock(end));
    let cursor = playback.filter(|_| right.width > 0).map(|playback| {
        let length = end.saturating_sub(*first).max(1) as f64;
        let share = playback.time_ms().saturating_sub(*first) as f64 / length;
        (share.clamp(0.0, 1.0) * f64::from(right.width - 1)).round() as u16
    });
    // The cursor is not drawn over a label: the time line below has both times as well.
    let label = u16::try_from(text::width(&begin) + 1).unwrap_or(u16::MAX);
    if cursor.is_none_or(|at| at >= label) {
        Line::styled(begin, theme.dim()).render(right, buffer);
    }
    if cursor.is_none_or(|at| at + label < right.width) {
        Line::styled(end_text, theme.dim())
            .right_aligned()
            .render(right, buffer);
    }
    if let Some(at) = cursor {
        buffer.set_string(right.x + at, right.y, "▲", theme.heading());
    }
}

fn draw_legend(theme: Theme, area: Rect, buffer: &mut Buffer) {
    let levels: [(i8, &str); 5] = [
        (0, "none"),
        (1, "<5 %"),
        (5, "5-20 %"),
        (20, "20-50 %"),
        (50, "50-100 %"),
    ];
    let mut spans = vec![Span::styled(" access rate: ", theme.dim())];
    for (heat, name) in levels {
        let sign = match theme.has_half_blocks() {
            true => Span::styled("█", Style::new().fg(theme.heat_colour(heat))),
            false => Span::raw(Theme::heat_shade(heat).to_string()),
        };
        spans.push(sign);
        spans.push(Span::styled(format!(" {name}  "), theme.dim()));
    }
    Line::from(spans).render(area, buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, heat: &[i8]) -> HeatmapRow {
        HeatmapRow {
            name: name.to_owned(),
            heat: heat.to_vec(),
            ..HeatmapRow::default()
        }
    }

    #[test]
    fn top_of_map_has_highest_addresses() {
        let rows = [row("low", &[]), row("high", &[])];
        let names = |count: usize| -> Vec<String> {
            let nth = |nth| {
                rows_at(&rows, nth, count)
                    .iter()
                    .map(|row| row.name.clone())
                    .collect()
            };
            (0..count).map(nth).collect()
        };
        assert_eq!(names(1), ["lowhigh"]);
        assert_eq!(names(2), ["high", "low"]);
        assert_eq!(names(4), ["high", "high", "low", "low"]);
    }

    #[test]
    fn mean_heat_ignores_unknown_and_keeps_low() {
        let rows = [row("", &[-1, 0, 1, 100]), row("", &[-1, -1, 0, 100])];
        let heat: Vec<i8> = (0..4).map(|column| mean_heat(&rows, column, 4)).collect();
        assert_eq!(heat, [-1, 0, 1, 100]);
        assert_eq!([mean_heat(&rows, 0, 2), mean_heat(&rows, 1, 2)], [0, 50]);
        assert_eq!(mean_heat(&rows, 7, 8), 100);
    }
}
