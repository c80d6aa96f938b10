//! Pictures of results as SVG, drawn without any library: dots for single runs, lines for memory over time.

use std::fmt::Write as _;

/// Colours that stay apart for most colour-blind people (Okabe and Ito), in the order of configurations.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f",
];
const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 30.0;

/// The colour of the configuration at `index`.
pub(crate) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// One line of dots: `(its values, the configuration's index)`.
pub(crate) type Dots = (Vec<f64>, usize);

/// A row of a dot plot: a workload, and its dots under each configuration.
pub(crate) type Row<'a> = (&'a str, Vec<Dots>);

/// Dots for single runs and a bar for their mean, a row a workload. `mark` draws an upright line, at 100 % say.
pub(crate) fn dots(rows: &[Row], unit: &str, mark: Option<f64>) -> String {
    let lines: usize = rows.iter().map(|(_, dots)| dots.len()).sum();
    #[expect(clippy::cast_precision_loss, reason = "a picture has few rows")]
    let height = 46.0 + lines as f64 * 14.0 + rows.len() as f64 * 10.0;
    let values = rows
        .iter()
        .flat_map(|(_, dots)| dots)
        .flat_map(|(values, _)| values)
        .copied();
    let scale = Scale::over(values.chain(mark), LEFT, WIDTH - RIGHT);
    let mut svg = open(height);
    scale.axis_below(&mut svg, height - 36.0, unit);
    if let Some(at) = mark {
        let x = scale.place(at);
        let _ = write!(
            svg,
            r#"<line class="mark" x1="{x:.1}" y1="0" x2="{x:.1}" y2="{:.1}"/>"#,
            height - 36.0
        );
    }
    let mut y = 12.0;
    for (name, dots) in rows {
        let _ = write!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 12.0,
            y + 4.0,
            escaped(name)
        );
        for (values, index) in dots {
            draw_dots(&mut svg, &scale, values, y, colour(*index), unit);
            y += 14.0;
        }
        y += 10.0;
    }
    svg + "</svg>"
}

fn draw_dots(svg: &mut String, scale: &Scale, values: &[f64], y: f64, colour: &str, unit: &str) {
    for value in values {
        let x = scale.place(*value);
        let told = number(*value);
        let _ = write!(
            svg,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{colour}" fill-opacity="0.55"><title>{told} {unit}</title></circle>"#
        );
    }
    if let Some(summary) = crate::stats::Summary::of(values) {
        let x = scale.place(summary.mean);
        let (top, bottom) = (y - 6.0, y + 6.0);
        let _ = write!(
            svg,
            r#"<line x1="{x:.1}" y1="{top:.1}" x2="{x:.1}" y2="{bottom:.1}" stroke="{colour}" stroke-width="2.5"/>"#
        );
    }
}

/// A line over time: `(points of seconds and value, the configuration's index)`.
pub(crate) type Line = (Vec<(f64, f64)>, usize);

/// Lines over time from 0 upwards.
pub(crate) fn lines(lines: &[Line], unit: &str) -> String {
    let height = 240.0;
    let (top, bottom, left) = (10.0, height - 36.0, 70.0);
    let points = || lines.iter().flat_map(|(points, _)| points);
    let across = Scale::over(points().map(|point| point.0).chain([0.0]), left, WIDTH - RIGHT);
    let up = Scale::over(points().map(|point| point.1).chain([0.0]), bottom, top);
    let mut svg = open(height);
    across.axis_below(&mut svg, bottom, "s");
    for at in up.ticks() {
        let y = up.place(at);
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{left}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}"/>"#,
            WIDTH - RIGHT
        );
        let _ = write!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            left - 6.0,
            y + 4.0,
            up.label(at)
        );
    }
    let _ = write!(svg, r#"<text x="4" y="{:.1}">{unit}</text>"#, top + 8.0);
    for (points, index) in lines {
        let path: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", across.place(*x), up.place(*y)))
            .collect();
        let (path, colour) = (path.join(" "), colour(*index));
        let _ = write!(
            svg,
            r#"<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>"#
        );
    }
    svg + "</svg>"
}

fn open(height: f64) -> String {
    format!(r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" role="img">"#)
}

/// Values to places.
struct Scale {
    low: f64,
    high: f64,
    step: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale with round ends over `values`, drawn between the places `from` and `to`.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let (low, high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
        let span = if high - low > 0.0 {
            high - low
        } else {
            low.abs().max(1.0)
        };
        let rough = span / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|one| one * power)
            .into_iter()
            .find(|step| *step >= rough);
        let step = step.unwrap_or(span);
        Self {
            low: (low / step).floor() * step,
            high: ((high / step).floor() + 1.0) * step,
            step,
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        (0..=12)
            .map(|at| self.low + f64::from(at) * self.step)
            .take_while(|at| *at <= self.high + self.step / 2.0)
    }

    /// A tick's number, with as many places as its neighbours need to differ.
    fn label(&self, at: f64) -> String {
        let places = (0..6).find(|places| self.step * 10f64.powi(*places) >= 1.0);
        let places = usize::try_from(places.unwrap_or(6)).unwrap_or(0);
        // Not -0, which a sum of steps can come to.
        shortened(format!("{:.places$}", at + 0.0))
    }

    fn axis_below(&self, svg: &mut String, y: f64, unit: &str) {
        for at in self.ticks() {
            let x = self.place(at);
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{x:.1}" y1="0" x2="{x:.1}" y2="{y:.1}"/>"#
            );
            let label = self.label(at);
            let _ = write!(
                svg,
                r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
                y + 16.0
            );
        }
        let middle = f64::midpoint(self.from, self.to);
        let _ = write!(
            svg,
            r#"<text x="{middle:.1}" y="{:.1}" text-anchor="middle">{unit}</text>"#,
            y + 32.0
        );
    }
}

/// A number as short as it can be read.
fn number(value: f64) -> String {
    let text = if value.abs() >= 100.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    };
    shortened(text)
}

/// Without zeros at the end that say nothing.
fn shortened(text: String) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Text that may stand in HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_ends_and_hold_every_value() {
        let scale = Scale::over([93.0, 107.0].into_iter(), 0.0, 100.0);
        assert_eq!((scale.low, scale.high, scale.step), (90.0, 110.0, 5.0));
        assert!(Scale::over([3.0].into_iter(), 0.0, 1.0).place(3.0).is_finite());
        assert!(Scale::over(std::iter::empty(), 0.0, 1.0).place(0.5).is_finite());
        assert_eq!(
            scale.ticks().map(|at| scale.label(at)).collect::<Vec<_>>(),
            ["90", "95", "100", "105", "110"]
        );
        let fine = Scale::over([99.2, 101.4].into_iter(), 0.0, 100.0);
        assert_eq!(
            fine.ticks().map(|at| fine.label(at)).collect::<Vec<_>>(),
            ["99", "99.5", "100", "100.5", "101", "101.5"]
        );
    }

    #[test]
    fn every_run_is_a_dot_and_names_are_escaped() {
        let svg = dots(
            &[("a<b", vec![(vec![99.0, 101.0], 0), (vec![80.0], 1)])],
            "%",
            Some(100.0),
        );
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("a&lt;b") && svg.ends_with("</svg>"));
    }
}
