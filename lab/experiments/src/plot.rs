//! Plots of results as SVG: dots for single runs, lines for memory over time.

use std::fmt::Write as _;

/// Colours that most colour-blind people can distinguish (Okabe and Ito), in the order of configurations.
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

/// One line of dots: values, and index of the configuration.
pub(crate) type Dots = (Vec<f64>, usize);

/// A row of a dot plot: a workload, and its dots under each configuration.
pub(crate) type Row<'a> = (&'a str, Vec<Dots>);

/// A dot plot: a dot for each run and a bar for their mean, in one row for each workload. `mark` is the
/// position of a vertical line, e.g. at 100 %.
pub(crate) fn dots(rows: &[Row], unit: &str, mark: Option<f64>) -> String {
    let lines: usize = rows.iter().map(|(_, dots)| dots.len()).sum();
    #[expect(clippy::cast_precision_loss, reason = "a plot has few rows")]
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
        let x = scale.position(at);
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
        let x = scale.position(*value);
        let number = number(*value);
        let _ = write!(
            svg,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{colour}" fill-opacity="0.55"><title>{number} {unit}</title></circle>"#
        );
    }
    if let Some(summary) = crate::stats::Summary::from_values(values) {
        let x = scale.position(summary.mean);
        let (top, bottom) = (y - 6.0, y + 6.0);
        let _ = write!(
            svg,
            r#"<line x1="{x:.1}" y1="{top:.1}" x2="{x:.1}" y2="{bottom:.1}" stroke="{colour}" stroke-width="2.5"/>"#
        );
    }
}

/// A line over time: points of seconds and value, and index of the configuration.
pub(crate) type Line = (Vec<(f64, f64)>, usize);

/// A line plot over time, with axes from 0.
pub(crate) fn lines(lines: &[Line], unit: &str) -> String {
    let height = 240.0;
    let (top, bottom, left) = (10.0, height - 36.0, 70.0);
    let points = || lines.iter().flat_map(|(points, _)| points);
    let across = Scale::over(points().map(|point| point.0).chain([0.0]), left, WIDTH - RIGHT);
    let up = Scale::over(points().map(|point| point.1).chain([0.0]), bottom, top);
    let mut svg = open(height);
    across.axis_below(&mut svg, bottom, "s");
    up.axis_left(&mut svg, left, WIDTH - RIGHT);
    let _ = write!(svg, r#"<text x="4" y="{:.1}">{unit}</text>"#, top + 8.0);
    for (points, index) in lines {
        let path: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", across.position(*x), up.position(*y)))
            .collect();
        let (path, colour) = (path.join(" "), colour(*index));
        let _ = write!(
            svg,
            r#"<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>"#
        );
    }
    svg + "</svg>"
}

/// A dot of a scatter plot.
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Index of the name in the legend.
    pub(crate) series: usize,
    pub(crate) title: String,
}

/// A scatter plot as an image of its own: `names` in a legend, titles of both axes, which have the same
/// scale, a diagonal, and dashed lines `tolerance` above and below.
pub(crate) fn scatter(points: &[Point], names: &[&str], axes: [&str; 2], tolerance: f64) -> String {
    let (left, top, side) = (70.0, 14.0, 520.0);
    let bottom = top + side;
    let values = || points.iter().flat_map(|point| [point.x, point.y]).chain([0.0]);
    let across = Scale::over(values(), left, left + side);
    let up = Scale::over(values(), bottom, top);
    let mut svg = open(bottom + 40.0);
    svg += "<style>text{font:13px sans-serif;fill:#333}.grid{stroke:#ddd}.line{stroke:#888;fill:none}</style>\
            <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>";
    across.axis_below(&mut svg, bottom, axes[0]);
    up.axis_left(&mut svg, left, left + side);
    let middle = f64::midpoint(top, bottom);
    let _ = write!(
        svg,
        r#"<text transform="translate(16 {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
        axes[1]
    );
    for (offset, dash) in [(0.0, "none"), (tolerance, "5 4"), (-tolerance, "5 4")] {
        let (from, to) = (
            across.low.max(across.low - offset),
            across.high.min(across.high - offset),
        );
        let _ = write!(
            svg,
            r#"<line class="line" stroke-dasharray="{dash}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
            across.position(from),
            up.position(from + offset),
            across.position(to),
            up.position(to + offset)
        );
    }
    for point in points {
        let (x, y) = (across.position(point.x), up.position(point.y));
        let marker = marker(x, y, point.series, "point");
        let _ = write!(svg, "<g>{marker}<title>{}</title></g>", escaped(&point.title));
    }
    for (series, name) in names.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a plot has few series")]
        let y = top + 14.0 + series as f64 * 20.0;
        svg += &marker(left + side + 30.0, y - 4.0, series, "legend");
        let _ = write!(
            svg,
            r#"<text x="{:.1}" y="{y:.1}">{}</text>"#,
            left + side + 44.0,
            escaped(name)
        );
    }
    svg + "</svg>"
}

/// A dot or, when all colours are used up, a square.
fn marker(x: f64, y: f64, series: usize, class: &str) -> String {
    let colour = colour(series);
    if series < COLOURS.len() {
        return format!(
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="5" fill="{colour}" fill-opacity="0.75"/>"#
        );
    }
    let (x, y) = (x - 4.5, y - 4.5);
    format!(
        r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="9" height="9" fill="{colour}" fill-opacity="0.75"/>"#
    )
}

fn open(height: f64) -> String {
    format!(r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" role="img">"#)
}

/// Maps values to positions in the plot.
struct Scale {
    low: f64,
    high: f64,
    step: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale with round ends that covers `values`, drawn between the positions `from` and `to`.
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

    fn position(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        (0..=12)
            .map(|at| self.low + f64::from(at) * self.step)
            .take_while(|at| *at <= self.high + self.step / 2.0)
    }

    /// The number at a tick, with enough decimals to differ from its neighbours.
    fn label(&self, at: f64) -> String {
        let decimals = (0..6).find(|decimals| self.step * 10f64.powi(*decimals) >= 1.0);
        let decimals = usize::try_from(decimals.unwrap_or(6)).unwrap_or(0);
        // Adding 0 turns -0, which a sum of steps can give, into 0.
        shortened(format!("{:.decimals$}", at + 0.0))
    }

    /// Grid lines from `left` to `right`, with labels on the left.
    fn axis_left(&self, svg: &mut String, left: f64, right: f64) {
        for at in self.ticks() {
            let y = self.position(at);
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{left}" y1="{y:.1}" x2="{right:.1}" y2="{y:.1}"/>"#
            );
            let _ = write!(
                svg,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                left - 6.0,
                y + 4.0,
                self.label(at)
            );
        }
    }

    fn axis_below(&self, svg: &mut String, y: f64, unit: &str) {
        for at in self.ticks() {
            let x = self.position(at);
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

/// Formats a number without trailing zeros.
fn number(value: f64) -> String {
    let text = if value.abs() >= 100.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    };
    shortened(text)
}

/// Removes trailing zeros after the decimal point.
fn shortened(text: String) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Escapes text for HTML.
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
    fn scale_covers_values_with_round_ends() {
        let scale = Scale::over([93.0, 107.0].into_iter(), 0.0, 100.0);
        assert_eq!((scale.low, scale.high, scale.step), (90.0, 110.0, 5.0));
        assert!(Scale::over([3.0].into_iter(), 0.0, 1.0).position(3.0).is_finite());
        assert!(
            Scale::over(std::iter::empty(), 0.0, 1.0)
                .position(0.5)
                .is_finite()
        );
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
    fn plot_draws_each_run_and_escapes_names() {
        let svg = dots(
            &[("a<b", vec![(vec![99.0, 101.0], 0), (vec![80.0], 1)])],
            "%",
            Some(100.0),
        );
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("a&lt;b") && svg.ends_with("</svg>"));
    }
}
