//! Experiment files: TOML that a person wrote, read into values that say where a mistake stands.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::{DeserializeOwned, Deserializer, Error as _, IgnoredAny};
use serde::{Deserialize, de};
use thermo_units::text::ParseError;
use toml::Spanned;

use crate::Error;

/// A part of a file whose place is asked for, and nothing else.
pub(crate) type Place = Spanned<IgnoredAny>;

/// Reads the file at `path` by `parse`, which gets its text and the folder it is in.
pub(crate) fn read<T>(
    path: &Path,
    parse: impl FnOnce(&str, &Path) -> Result<T, ParseError>,
) -> Result<T, Error> {
    let path = path.to_owned();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => {
            let doing = "read";
            return Err(Error::File { doing, path, source });
        }
    };
    parse(&text, &folder_of(&path)).map_err(|fault| Error::Mistake { path, fault })
}

fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

/// The values of `text`, or its first mistake.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ParseError> {
    toml::from_str(text).map_err(|error| ParseError::of_parser(text, error.span(), error.message()))
}

/// A mistake of `part` of `text`.
pub(crate) fn fault<T>(text: &str, part: &Spanned<T>, message: impl Into<String>) -> ParseError {
    ParseError::at_offset(text, part.span().start, message)
}

/// A field that is written as a text in quotes, like `"1G"`.
pub(crate) fn word<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// The same of a field that may be left out.
pub(crate) fn some_word<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    word(from).map(Some)
}

/// A field that may be given, checked by `check`, which tells what is wrong.
pub(crate) fn checked<'de, D, T>(from: D, check: impl FnOnce(&T) -> Option<String>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: de::Deserialize<'de>,
{
    let value = T::deserialize(from)?;
    check(&value).map_or(Ok(value), |wrong| Err(D::Error::custom(wrong)))
}
