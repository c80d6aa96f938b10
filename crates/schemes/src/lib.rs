//! Scheme files: parse, print and describe [`Scheme`]s.
//!
//! Three formats hold a list of schemes: DAMOS lines (one scheme per line, enough for most uses), damo's JSON
//! list, and TOML with every feature. [`parse`] detects the format. An error is a [`ParseError`] with line,
//! column and the correction. A text with one bad scheme returns no scheme at all.
//!
//! JSON and TOML are parsed into one tree with source positions (`tree`). One reader (`read`) handles the
//! tree with the field names of either format (`vocabulary`). Only the writers are separate.

// Reads what others wrote: an index that could panic or a cast that could lose bits is an error here
// (CONTRIBUTING.md, Style).
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod checked;
mod damo;
mod damos;
mod describe;
mod exact;
mod format;
mod quantity;
mod read;
mod toml;
mod tree;
mod vocabulary;

pub use self::toml::print as print_toml;
pub use checked::checked_json;
pub use damo::print as print_json;
pub use damos::{holds as fits_line, print as print_line};
pub use describe::describe;
pub use format::Format;

use thermo_engine::Scheme;
use thermo_units::text::ParseError;

/// Parses a scheme file. The extension of `name` decides the format, else the content.
///
/// # Errors
/// The first error, with its position and the correction.
pub fn parse(name: &str, text: &str) -> Result<Vec<Scheme>, ParseError> {
    parse_as(Format::detect(name, text), text)
}

/// Parses a scheme file of a known format.
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
        let correction = match format {
            Format::Line => "write a line like `4K max 0 0 5s max pageout`",
            Format::Json => "the list needs an entry like {\"action\": \"pageout\", ...}",
            Format::Toml => "write a [[scheme]] with its action",
        };
        return Err(ParseError::new(
            1,
            1,
            format!("there is no scheme in this file: {correction}"),
        ));
    }
    Ok(schemes)
}

/// The normal form of a scheme: a DAMOS line if one can express it, else TOML.
#[must_use]
pub fn normal_form(scheme: &Scheme) -> String {
    print_line(scheme).unwrap_or_else(|| print_toml(std::slice::from_ref(scheme)))
}
