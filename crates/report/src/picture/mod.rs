//! Pictures: a scene of rectangles, lines, texts and rasters, which is drawn as SVG or PNG.

pub(crate) mod axis;
mod line;
pub mod palette;
mod png;
mod svg;

pub use line::LineChart;
pub(crate) use palette::Rgb;
use thermo_units::template;

/// An error of drawing a picture.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// The PNG encoder failed.
    #[error("the picture cannot be encoded as PNG: {0}")]
    Png(#[from] ::png::EncodingError),
}

/// Width of a character of [`Size::Normal`] in pixels, in PNG and SVG.
pub(crate) const CHAR_WIDTH: usize = 8;

/// Text size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Normal,
    Title,
}

/// The point of a text that its `x` refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Left,
    Middle,
    Right,
}

/// An element of a scene. Later elements are drawn over earlier ones.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Rect {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        fill: Rgb,
    },
    Lines {
        points: Vec<(f64, f64)>,
        colour: Rgb,
        width: u32,
    },
    /// `y` is the vertical middle of the text.
    Text {
        x: f64,
        y: f64,
        anchor: Anchor,
        size: Size,
        colour: Rgb,
        text: String,
    },
    /// Pixels, row by row from the top, scaled without smoothing.
    Raster {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        columns: usize,
        pixels: Vec<Rgb>,
    },
}

/// A picture.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) items: Vec<Item>,
}

impl Scene {
    pub(crate) const fn new(width: usize, height: usize) -> Self {
        Self {
            width,
            height,
            items: Vec::new(),
        }
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: Anchor, text: impl Into<String>) {
        let (size, colour) = (Size::Normal, palette::INK);
        self.items.push(Item::Text {
            x,
            y,
            anchor,
            size,
            colour,
            text: text.into(),
        });
    }

    pub(crate) fn title(&mut self, text: impl Into<String>) {
        let (x, y, anchor, size) = (16.0, 20.0, Anchor::Left, Size::Title);
        self.items.push(Item::Text {
            x,
            y,
            anchor,
            size,
            colour: palette::INK,
            text: text.into(),
        });
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: Rgb) {
        self.items.push(Item::Lines {
            points: vec![from, to],
            colour,
            width: 1,
        });
    }

    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: Rgb) {
        self.items.push(Item::Rect {
            x,
            y,
            width,
            height,
            fill,
        });
    }

    /// Draws a horizontal axis from 0 to `end`, from the point `from` over `width` pixels.
    pub(crate) fn x_axis(
        &mut self,
        from: (f64, f64),
        width: f64,
        end: f64,
        ticks: Vec<(f64, String)>,
        name: &str,
    ) {
        let (x, y) = from;
        self.line((x, y), (x + width, y), palette::INK);
        for (tick, label) in ticks {
            let at = x + tick / end.max(f64::MIN_POSITIVE) * width;
            self.line((at, y), (at, y + 6.0), palette::INK);
            self.text(at, y + 16.0, Anchor::Middle, label);
        }
        self.text(x + width / 2.0, y + 36.0, Anchor::Middle, name);
    }

    /// Draws a time axis of `seconds` at `y`, from `x` over `width` pixels.
    pub(crate) fn time_axis(&mut self, x: f64, y: f64, width: f64, seconds: f64) {
        let ticks = axis::ticks(seconds, 10).into_iter();
        let ticks = ticks.map(|tick| (tick, axis::seconds(tick))).collect();
        self.x_axis((x, y), width, seconds, ticks, "time since the start");
    }
}

/// `text`, escaped for XML and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A self-contained HTML page with `svg` documents, one below the other, and a text.
#[must_use]
pub fn page(title: &str, svg: &str, text: &str) -> String {
    // In one pass: names of programs are part of the values, and may look like placeholders.
    template::fill(
        include_str!("page.html"),
        &["{{title}}", "{{svg}}", "{{text}}"],
        |nth| match nth {
            0 => escape(title),
            1 => svg.to_owned(),
            _ => escape(text),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_placeholders_stay_text_in_a_page() {
        let page = page("{{svg}}{{text}}", "<svg>{{text}}</svg>", "idle");
        assert!(page.contains("<title>{{svg}}{{text}}</title>"), "{page}");
        assert_eq!(page.matches("idle").count(), 1, "{page}");
        assert!(page.contains("<svg>{{text}}</svg>"), "{page}");
    }
}
