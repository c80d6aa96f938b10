//! A heatmap as SVG and PNG.

use thermo_units::Bytes;

use super::view::{Band, Row, TargetView, fit, label};
use super::{ABSENT, Heatmap, UNKNOWN};
use crate::layout::short_name;
use crate::picture::{Anchor, CHAR_WIDTH, Item, PictureError, Rgb, Scene, palette};
use crate::style::percent;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 44.0;
/// Height of all bands together; a row is one pixel high.
const ROWS: usize = 520;
/// Minimum height of a band: the height of its label.
const MIN_ROWS: usize = 15;
/// Space between two bands.
const FOLD: f64 = 5.0;
/// Distance between two address labels.
const LABEL_GAP: f64 = 60.0;
/// Maximum number of targets in one picture.
const MAX_TARGETS: usize = 16;
/// Maximum characters of a mapping's name.
const NAME_CHARS: usize = 24;

impl Heatmap {
    /// The heatmap as an SVG document.
    #[must_use]
    pub fn svg(&self) -> String {
        self.scene().svg()
    }

    /// The heatmap as a PNG file.
    ///
    /// # Errors
    /// [`PictureError`] when it cannot be encoded.
    pub fn png(&self) -> Result<Vec<u8>, PictureError> {
        self.scene().png()
    }

    fn scene(&self) -> Scene {
        let mut scene = Scene::new(WIDTH as usize, 0);
        let incomplete = self.basis.first_pass_text();
        let incomplete = incomplete.map(|text| format!("; {text}")).unwrap_or_default();
        scene.title(format!(
            "Access rate by time and address ({}{incomplete})",
            self.basis.summary()
        ));
        let mut y = TOP;
        if self.targets.is_empty() {
            scene.text(LEFT, y + 10.0, Anchor::Left, self.basis.no_data());
            scene.height = 100;
            return scene;
        }
        let columns = self.columns.min((WIDTH - LEFT - RIGHT) as usize);
        let (targets, others) = self.largest(MAX_TARGETS);
        let views = fit(&targets, columns, ROWS.max(40 * targets.len()), MIN_ROWS);
        for view in &views {
            scene.text(LEFT - 8.0, y + 4.0, Anchor::Right, "address");
            scene.text(LEFT, y + 4.0, Anchor::Left, heading(view));
            scene.text(WIDTH - RIGHT + 9.0, y + 4.0, Anchor::Left, "mapping");
            y = bands(&mut scene, &view.bands, columns, y + 16.0) + 12.0;
        }
        scene.time_axis(LEFT, y - 6.0, WIDTH - LEFT - RIGHT, self.seconds());
        if others > 0 {
            let text = format!("{others} more targets are not shown");
            scene.text(LEFT, y + 30.0, Anchor::Left, text);
        }
        legend(&mut scene, y + 56.0, self.unknown_share);
        scene.height = (y + 112.0) as usize;
        scene
    }
}

fn heading(view: &TargetView<'_>) -> String {
    let bytes = Bytes(view.target.cells() as u64 * view.target.cell_bytes);
    format!(
        "{}, {bytes}; addresses without memory are omitted",
        view.target.name
    )
}

/// Draws bands from `y` down, highest address first. Returns the y below the last band.
fn bands(scene: &mut Scene, bands: &[Band<'_>], columns: usize, mut y: f64) -> f64 {
    let width = WIDTH - LEFT - RIGHT;
    for (index, band) in bands.iter().enumerate().rev() {
        let height = band.rows.len() as f64;
        let pixels = band
            .rows
            .iter()
            .rev()
            .flat_map(|row| row.rates.iter().map(|rate| colour(*rate)))
            .collect();
        scene.items.push(Item::Raster {
            x: LEFT,
            y,
            width,
            height,
            columns,
            pixels,
        });
        addresses(scene, band, y);
        names(scene, band, y);
        y += height;
        if index > 0 {
            scene.line(
                (LEFT - 30.0, y + FOLD / 2.0),
                (LEFT + width, y + FOLD / 2.0),
                palette::GUIDE,
            );
            y += FOLD;
        }
    }
    y
}

/// Address labels on the left: the first address at the bottom, others every [`LABEL_GAP`].
fn addresses(scene: &mut Scene, band: &Band<'_>, y: f64) {
    let height = band.rows.len() as f64;
    let labels = ((height - 8.0) / LABEL_GAP).floor().max(0.0) as usize;
    for label in 0..=labels {
        let row = (label as f64 * LABEL_GAP) as usize;
        let at = y + height - row as f64;
        scene.line((LEFT - 5.0, at), (LEFT, at), palette::INK);
        scene.text(
            LEFT - 8.0,
            at - 5.0,
            Anchor::Right,
            format!("{:#x}", band.rows[row].start),
        );
    }
}

/// Mapping names on the right, each at the middle of its rows. A name that would overlap another is omitted.
fn names(scene: &mut Scene, band: &Band<'_>, y: f64) {
    let x = WIDTH - RIGHT;
    let mut free_from = y - 4.0;
    let rows: Vec<&Row<'_>> = band.rows.iter().rev().collect();
    let mut first = 0;
    for run in rows.chunk_by(|a, b| a.name == b.name) {
        let (top, bottom) = (y + first as f64, y + (first + run.len()) as f64);
        first += run.len();
        let middle = f64::midpoint(top, bottom);
        let Some(name) = run[0].name.filter(|_| middle - 6.0 >= free_from) else {
            continue;
        };
        let style = crate::Style {
            ascii: true,
            ..crate::Style::default()
        };
        scene.line((x + 3.0, top + 1.0), (x + 3.0, bottom - 1.0), palette::INK);
        scene.text(
            x + 9.0,
            middle,
            Anchor::Left,
            style.cut(&label(short_name(name), run[0].more_names), NAME_CHARS),
        );
        free_from = middle + 7.0;
    }
}

fn legend(scene: &mut Scene, y: f64, unknown_share: f64) {
    const STEPS: usize = 300;
    let label = "accessed in";
    let x = LEFT + (label.len() + 2) as f64 * CHAR_WIDTH as f64;
    scene.text(LEFT, y + 7.0, Anchor::Left, label);
    // Like the colours, the legend is linear in the square root of the rate.
    let rate = |step: usize| (step as f64 / (STEPS - 1) as f64).powi(2);
    let pixels = (0..STEPS)
        .map(|step| palette::of_rate((rate(step) * 1000.0).round() as i16))
        .collect();
    let (width, height) = (STEPS as f64, 14.0);
    scene.items.push(Item::Raster {
        x,
        y,
        width,
        height,
        columns: STEPS,
        pixels,
    });
    for percent in [0.0, 1.0, 5.0, 20.0, 50.0, 100.0_f64] {
        let at = x + (percent / 100.0).sqrt() * width;
        scene.line((at, y + height), (at, y + height + 5.0), palette::INK);
        scene.text(at, y + height + 13.0, Anchor::Middle, format!("{percent}"));
    }
    scene.text(x + width + 24.0, y + 7.0, Anchor::Left, "% of access checks");
    let unknown = format!("unknown (last: {})", percent(unknown_share));
    for (at, fill, name) in [
        (480.0, palette::UNKNOWN, unknown.as_str()),
        (730.0, palette::ABSENT, "no memory mapped"),
    ] {
        scene.rect(x + at, y, 14.0, 14.0, fill);
        scene.text(x + at + 20.0, y + 7.0, Anchor::Left, name);
    }
}

fn colour(rate: i16) -> Rgb {
    match rate {
        ABSENT => palette::ABSENT,
        UNKNOWN => palette::UNKNOWN,
        rate => palette::of_rate(rate),
    }
}
