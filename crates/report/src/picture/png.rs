//! Draws a scene as PNG. The bitmap font is compiled in, so no font files are needed.

use std::convert::Infallible;

use embedded_graphics::mono_font::iso_8859_1::{FONT_8X13, FONT_9X15_BOLD};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::{
    DrawTarget, Drawable, OriginDimensions, Pixel, Point, Primitive, RgbColor, Size as Dim,
};
use embedded_graphics::primitives::{Polyline, PrimitiveStyle};
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};

use super::palette::PAPER;
use super::{Anchor, Item, PictureError, Rgb, Scene, Size};

/// The pixels of a picture.
struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Rgb>,
}

impl Scene {
    /// The scene as a PNG file.
    pub(crate) fn png(&self) -> Result<Vec<u8>, PictureError> {
        let pixels = vec![PAPER; self.width * self.height];
        let mut canvas = Canvas {
            width: self.width,
            height: self.height,
            pixels,
        };
        for item in &self.items {
            canvas.draw(item);
        }
        encode(canvas.width, &canvas.pixels)
    }
}

/// Encodes rows of `columns` pixels as a PNG file.
pub(super) fn encode(columns: usize, pixels: &[Rgb]) -> Result<Vec<u8>, PictureError> {
    let mut file = Vec::new();
    let rows = pixels.len() / columns.max(1);
    let mut encoder = png::Encoder::new(&mut file, columns as u32, rows as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(pixels.as_flattened())?;
    Ok(file)
}

impl Canvas {
    fn draw(&mut self, item: &Item) {
        match item {
            Item::Rect {
                x,
                y,
                width,
                height,
                fill,
            } => self.fill(*x, *y, *width, *height, |_, _| *fill),
            Item::Raster {
                x,
                y,
                width,
                height,
                columns,
                pixels,
            } => {
                let rows = pixels.len() / columns.max(&1);
                let at =
                    |share: f64, count: usize| ((share * count as f64) as usize).min(count.saturating_sub(1));
                if rows > 0 {
                    self.fill(*x, *y, *width, *height, |h, v| {
                        pixels[at(v, rows) * columns + at(h, *columns)]
                    });
                }
            }
            Item::Lines {
                points,
                colour,
                width,
            } => {
                let points: Vec<Point> = points.iter().map(|&(x, y)| point(x, y)).collect();
                let style = PrimitiveStyle::with_stroke(rgb888(*colour), *width);
                let Ok(()) = Polyline::new(&points).into_styled(style).draw(self);
            }
            Item::Text {
                x,
                y,
                anchor,
                size,
                colour,
                text,
            } => self.text((*x, *y), *anchor, *size, *colour, text),
        }
    }

    /// Fills a rectangle. `colour` gets the position in the rectangle, from 0 to 1 in both directions.
    fn fill(&mut self, x: f64, y: f64, width: f64, height: f64, colour: impl Fn(f64, f64) -> Rgb) {
        let columns = (x.round() as usize)..((x + width).round() as usize).min(self.width);
        for row in (y.round() as usize)..((y + height).round() as usize).min(self.height) {
            let down = (row as f64 + 0.5 - y) / height;
            for column in columns.clone() {
                self.pixels[row * self.width + column] = colour((column as f64 + 0.5 - x) / width, down);
            }
        }
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, size: Size, colour: Rgb, text: &str) {
        let font: &MonoFont<'_> = match size {
            Size::Normal => &FONT_8X13,
            Size::Title => &FONT_9X15_BOLD,
        };
        let alignment = match anchor {
            Anchor::Left => Alignment::Left,
            Anchor::Middle => Alignment::Center,
            Anchor::Right => Alignment::Right,
        };
        let style = TextStyleBuilder::new()
            .alignment(alignment)
            .baseline(Baseline::Middle)
            .build();
        let letters = MonoTextStyle::new(font, rgb888(colour));
        let Ok(_) = Text::with_text_style(text, point(x, y), letters, style).draw(self);
    }
}

fn point(x: f64, y: f64) -> Point {
    Point::new(x.round() as i32, y.round() as i32)
}

fn rgb888([r, g, b]: Rgb) -> Rgb888 {
    Rgb888::new(r, g, b)
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Dim {
        Dim::new(self.width as u32, self.height as u32)
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(at, colour) in pixels {
            let (Ok(x), Ok(y)) = (usize::try_from(at.x), usize::try_from(at.y)) else {
                continue;
            };
            if x < self.width && y < self.height {
                self.pixels[y * self.width + x] = [colour.r(), colour.g(), colour.b()];
            }
        }
        Ok(())
    }
}
