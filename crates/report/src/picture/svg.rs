//! Draws a scene as SVG. Rasters are embedded as PNG and scaled without smoothing.

use base64::Engine;

use super::palette::{PAPER, Rgb, hex};
use super::{Anchor, Item, Scene, Size, escape};

impl Scene {
    /// The scene as an SVG document.
    pub(crate) fn svg(&self) -> String {
        let (width, height) = (self.width, self.height);
        let items: String = self.items.iter().map(item).collect();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n{items}</svg>\n",
            hex(PAPER)
        )
    }
}

fn item(item: &Item) -> String {
    match item {
        Item::Rect {
            x,
            y,
            width,
            height,
            fill,
        } => {
            let fill = hex(*fill);
            format!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>\n"
            )
        }
        Item::Lines {
            points,
            colour,
            width,
        } => {
            let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let (points, colour) = (points.join(" "), hex(*colour));
            format!(
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>\n"
            )
        }
        Item::Text {
            x,
            y,
            anchor,
            size,
            colour,
            text,
        } => text_element((*x, *y), *anchor, *size, *colour, text),
        Item::Raster {
            x,
            y,
            width,
            height,
            columns,
            pixels,
        } => {
            let data = data_url(*columns, pixels);
            format!(
                "<image x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                 preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" href=\"{data}\"/>\n"
            )
        }
    }
}

fn text_element((x, y): (f64, f64), anchor: Anchor, size: Size, colour: Rgb, text: &str) -> String {
    let anchor = match anchor {
        Anchor::Left => "start",
        Anchor::Middle => "middle",
        Anchor::Right => "end",
    };
    // A monospaced character is about 0.6 em wide: a font of 13.3 px has characters of `CHAR_WIDTH` = 8 px.
    let (size, weight) = match size {
        Size::Normal => ("13.3", "normal"),
        Size::Title => ("15", "bold"),
    };
    let (colour, text, y) = (hex(colour), escape(text), y + 4.5);
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
         font-weight=\"{weight}\" fill=\"{colour}\" xml:space=\"preserve\">{text}</text>\n"
    )
}

/// A raster as a data URL of a PNG image.
fn data_url(columns: usize, pixels: &[Rgb]) -> String {
    // Encoding to memory fails only for a raster without pixels, and such a raster shows nothing.
    let png = super::png::encode(columns, pixels).unwrap_or_default();
    let data = base64::engine::general_purpose::STANDARD.encode(png);
    format!("data:image/png;base64,{data}")
}
