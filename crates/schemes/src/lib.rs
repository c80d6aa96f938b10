//! Schemes as text: read, written, explained.
//!
//! Three formats hold the same thing, a list of [`Scheme`]s: the DAMOS line (what most need, a line a scheme),
//! damo's JSON list, and TOML with every feature. [`parse`] finds out which one a text is. Every mistake is a
//! [`ParseError`] with its line, its column and what would be right; a text with one bad scheme gives none.
//!
//! JSON and TOML become one tree with places (`tree`) that one reader (`read`) understands in two
//! vocabularies; only the writers are separate.

mod checked;
mod damo;
mod damos;
mod exact;
mod format;
mod quantity;
mod read;
mod sentence;
mod toml;
mod tree;
mod vocabulary;

pub use self::toml::print as print_toml;
pub use checked::checked_json;
pub use damo::print as print_json;
pub use damos::{holds as fits_line, print as print_line};
pub use format::Format;
pub use sentence::sentence;

use thermo_engine::Scheme;
use thermo_units::text::ParseError;

/// Reads the schemes of a text, in the format that `name` (of its file) or the text itself shows.
///
/// # Errors
/// The first mistake, with its place and what would be right.
pub fn parse(name: &str, text: &str) -> Result<Vec<Scheme>, ParseError> {
    parse_as(Format::of(name, text), text)
}

/// Reads the schemes of a text of a known format.
///
/// # Errors
/// As [`parse`].
pub fn parse_as(format: Format, text: &str) -> Result<Vec<Scheme>, ParseError> {
    let schemes = match format {
        Format::Line => damos::parse(text),
        Format::Json => damo::parse(text),
        Format::Toml => toml::parse(text),
    }?;
    if schemes.is_empty() {
        let right = match format {
            Format::Line => "write a line like `4K max 0 0 5s max pageout`",
            Format::Json => "the list needs an entry like {\"action\": \"pageout\", …}",
            Format::Toml => "write a [[scheme]] with its action",
        };
        return Err(ParseError::new(
            1,
            1,
            format!("there is no scheme in this file: {right}"),
        ));
    }
    Ok(schemes)
}

/// A scheme as we would write it: the DAMOS line where that can hold it, TOML where not.
#[must_use]
pub fn normal_form(scheme: &Scheme) -> String {
    print_line(scheme).unwrap_or_else(|| print_toml(std::slice::from_ref(scheme)))
}
