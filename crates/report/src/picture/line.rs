//! A chart of sizes over time or over another size.

use super::palette::{GUIDE, INK, LINES};
use super::{Anchor, CHAR_WIDTH, Item, Rgb, Scene, Size, axis};

const WIDTH: usize = 1200;
const HEIGHT: usize = 520;
const LEFT: f64 = 96.0;
/// Least room for the names of lines, and most.
const RIGHT: f64 = 170.0;
const MAX_RIGHT: f64 = 400.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 72.0;
/// Minimum distance between line labels, in pixels.
const LABEL_HEIGHT: f64 = 14.0;

/// A chart of sizes in bytes over time in seconds, or over another size.
#[derive(Debug, Clone, PartialEq)]
pub struct LineChart {
    /// The title.
    pub title: String,
    /// Name and points of each line: bytes by seconds, or by bytes.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// The text of a chart without points.
    pub empty: String,
}

impl LineChart {
    /// The chart over time as an SVG document.
    #[must_use]
    pub fn svg(&self) -> String {
        self.scene().svg()
    }

    /// The chart over time as a scene.
    pub(crate) fn scene(&self) -> Scene {
        self.draw(&|scene, plot, end| scene.time_axis(LEFT, plot.bottom(), plot.width(), end))
    }

    /// The chart over a size in bytes, called `name`, as a scene.
    pub(crate) fn scene_over_bytes(&self, name: &str) -> Scene {
        self.draw(&|scene, plot, end| {
            let ticks = axis::byte_ticks(end, 8)
                .into_iter()
                .map(|tick| (tick, axis::bytes(tick)));
            scene.x_axis((LEFT, plot.bottom()), plot.width(), end, ticks.collect(), name);
        })
    }

    fn draw(&self, x_axis: &dyn Fn(&mut Scene, &Plot, f64)) -> Scene {
        let mut scene = Scene::new(WIDTH, HEIGHT);
        scene.title(&self.title);
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let seconds = points().map(|point| point.0).fold(0.0, f64::max);
        let max_bytes = points().map(|point| point.1).fold(0.0, f64::max);
        if points().next().is_none() {
            scene.text(LEFT, TOP + 20.0, Anchor::Left, self.empty.as_str());
            return scene;
        }
        let longest = self.lines.iter().map(|(name, _)| name.chars().count()).max();
        let names = (longest.unwrap_or(0) * CHAR_WIDTH) as f64 + 16.0;
        let plot = Plot {
            right: names.clamp(RIGHT, MAX_RIGHT),
            seconds,
            max_bytes: (max_bytes * 1.08).max(1.0),
        };
        plot.byte_axis(&mut scene);
        x_axis(&mut scene, &plot, seconds);
        for ((_, points), colour) in self.lines.iter().zip(LINES.iter().cycle()) {
            let points = downsample(points)
                .into_iter()
                .map(|(s, b)| (plot.x(s), plot.y(b)))
                .collect();
            scene.items.push(Item::Lines {
                points,
                colour: *colour,
                width: 2,
            });
        }
        self.line_labels(&plot, &mut scene);
        scene
    }

    /// Writes the name of each line at its end, in its colour. Labels that would overlap are moved down.
    fn line_labels(&self, plot: &Plot, scene: &mut Scene) {
        let end = |points: &[(f64, f64)]| points.last().map(|point| plot.y(point.1));
        let lines = self.lines.iter().zip(LINES.iter().cycle());
        let mut labels: Vec<(f64, &str, &Rgb)> = lines
            .filter_map(|((name, points), colour)| Some((end(points)?, name.as_str(), colour)))
            .collect();
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = f64::MIN;
        for (y, name, colour) in labels {
            let y = y.max(free);
            free = y + LABEL_HEIGHT;
            scene.items.push(Item::Text {
                x: LEFT + plot.width() + 8.0,
                y,
                anchor: Anchor::Left,
                size: Size::Normal,
                colour: *colour,
                text: name.to_owned(),
            });
        }
    }
}

/// Maps data to pixels.
struct Plot {
    /// Room for the names of lines, in pixels.
    right: f64,
    seconds: f64,
    max_bytes: f64,
}

impl Plot {
    fn width(&self) -> f64 {
        WIDTH as f64 - LEFT - self.right
    }

    fn bottom(&self) -> f64 {
        HEIGHT as f64 - BOTTOM
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.seconds.max(f64::MIN_POSITIVE) * self.width()
    }

    fn y(&self, bytes: f64) -> f64 {
        self.bottom() - bytes / self.max_bytes * (self.bottom() - TOP)
    }

    fn byte_axis(&self, scene: &mut Scene) {
        for tick in axis::byte_ticks(self.max_bytes, 6) {
            let y = self.y(tick);
            scene.line((LEFT, y), (LEFT + self.width(), y), GUIDE);
            scene.text(LEFT - 8.0, y, Anchor::Right, axis::bytes(tick));
        }
        scene.line((LEFT, TOP), (LEFT, self.bottom()), INK);
    }
}

/// Reduces `points` to about two for each pixel: the minimum and maximum of each chunk, in their order.
fn downsample(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let chunk = points.len() / WIDTH + 1;
    if chunk < 3 {
        return points.to_vec();
    }
    let extremes = |chunk: &[(f64, f64)]| {
        let by_bytes = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let mut extremes: Vec<(f64, f64)> = chunk
            .iter()
            .min_by(by_bytes)
            .into_iter()
            .chain(chunk.iter().max_by(by_bytes))
            .copied()
            .collect();
        extremes.sort_by(|a, b| a.0.total_cmp(&b.0));
        extremes
    };
    points.chunks(chunk).flat_map(extremes).collect()
}
