//! Reads TOML experiment files and reports errors with their position.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::{DeserializeOwned, Deserializer, Error as _, IgnoredAny};
use serde::{Deserialize, de};
use thermo_units::text::{self, ParseError};
use toml::Spanned;

use crate::Error;

/// The position of a part of a file, without its value.
pub(crate) type Location = Spanned<IgnoredAny>;

/// Reads the file at `path` and calls `parse` with its text and its folder.
pub(crate) fn read<T>(
    path: &Path,
    parse: impl FnOnce(&str, &Path) -> Result<T, ParseError>,
) -> Result<T, Error> {
    let path = path.to_owned();
    let text = match text::read_file(&path) {
        Ok(text) => text,
        Err(source) => {
            return Err(Error::File {
                operation: "read",
                path,
                source,
            });
        }
    };
    parse(&text, &folder_of(&path)).map_err(|error| Error::Parse { path, error })
}

fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

/// Parses `text`, or returns its first error.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ParseError> {
    toml::from_str(text).map_err(|error| ParseError::from_parser(text, error.span(), error.message()))
}

/// An error at the start of `part` of `text`.
pub(crate) fn error_at<T>(text: &str, part: &Spanned<T>, message: impl Into<String>) -> ParseError {
    ParseError::at_offset(text, part.span().start, message)
}

/// Deserialises a field from a string by `FromStr`, e.g. `"1G"`.
pub(crate) fn parsed<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// Like [`parsed`], for an optional field.
pub(crate) fn parsed_option<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    parsed(from).map(Some)
}

/// Deserialises a field and validates it with `check`, which returns a message for an invalid value.
pub(crate) fn deserialize_checked<'de, D, T>(
    from: D,
    check: impl FnOnce(&T) -> Option<String>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: de::Deserialize<'de>,
{
    let value = T::deserialize(from)?;
    check(&value).map_or(Ok(value), |message| Err(D::Error::custom(message)))
}
