//! A chart of sizes over time.

use super::palette::{GUIDE, INK, LINES};
use super::{Anchor, Item, Rgb, Scene, Size, axis};

const WIDTH: usize = 1200;
const HEIGHT: usize = 520;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 72.0;
/// Labels of lines are at least so many pixels apart.
const LABEL_HEIGHT: f64 = 14.0;

/// Sizes in bytes over seconds.
pub(crate) struct LineChart {
    pub(crate) title: String,
    /// Name and points of each line.
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
    /// What stands there when no line has points.
    pub(crate) empty: String,
}

impl LineChart {
    /// The chart as a scene.
    pub(crate) fn scene(&self) -> Scene {
        let mut scene = Scene::new(WIDTH, HEIGHT);
        scene.title(&self.title);
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let seconds = points().map(|point| point.0).fold(0.0, f64::max);
        let most = points().map(|point| point.1).fold(0.0, f64::max);
        if points().next().is_none() {
            scene.text(LEFT, TOP + 20.0, Anchor::Left, self.empty.as_str());
            return scene;
        }
        let plot = Plot {
            seconds,
            most: (most * 1.08).max(1.0),
        };
        plot.sizes(&mut scene);
        scene.time_axis(LEFT, plot.bottom(), plot.width(), seconds);
        for ((_, points), colour) in self.lines.iter().zip(LINES.iter().cycle()) {
            let points = thinned(points)
                .into_iter()
                .map(|(s, b)| (plot.x(s), plot.y(b)))
                .collect();
            scene.items.push(Item::Lines {
                points,
                colour: *colour,
                width: 2,
            });
        }
        self.label(&plot, &mut scene);
        scene
    }

    /// Writes the name of each line, in its colour, where it ends; names that would lie on each other are moved down.
    fn label(&self, plot: &Plot, scene: &mut Scene) {
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

/// Where things are.
struct Plot {
    seconds: f64,
    most: f64,
}

impl Plot {
    fn width(&self) -> f64 {
        WIDTH as f64 - LEFT - RIGHT
    }

    fn bottom(&self) -> f64 {
        HEIGHT as f64 - BOTTOM
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.seconds.max(f64::MIN_POSITIVE) * self.width()
    }

    fn y(&self, bytes: f64) -> f64 {
        self.bottom() - bytes / self.most * (self.bottom() - TOP)
    }

    fn sizes(&self, scene: &mut Scene) {
        for tick in axis::byte_ticks(self.most, 6) {
            let y = self.y(tick);
            scene.line((LEFT, y), (LEFT + self.width(), y), GUIDE);
            scene.text(LEFT - 8.0, y, Anchor::Right, axis::bytes(tick));
        }
        scene.line((LEFT, TOP), (LEFT, self.bottom()), INK);
    }
}

/// At most about two points a pixel: of each stretch the smallest and the largest, in their order.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let chunk = points.len() / WIDTH + 1;
    if chunk < 3 {
        return points.to_vec();
    }
    let extremes = |stretch: &[(f64, f64)]| {
        let by = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let mut ends: Vec<(f64, f64)> = stretch
            .iter()
            .min_by(by)
            .into_iter()
            .chain(stretch.iter().max_by(by))
            .copied()
            .collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends
    };
    points.chunks(chunk).flat_map(extremes).collect()
}
