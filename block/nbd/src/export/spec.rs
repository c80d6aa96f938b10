//! Definitions of exports as text: the option `--export`, and `[[export]]` in a file.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use thermo_units::text::ParseError;
use thermo_units::{Bytes, UnitError};
use toml::de::{DeTable, DeValue};

/// The path that means memory.
const MEMORY: &str = "mem:";

/// The definition of an export.
#[derive(Debug, Default, PartialEq)]
pub struct ExportSpec {
    /// The name that clients request.
    pub name: String,
    /// `None`: memory.
    pub path: Option<PathBuf>,
    /// The size of memory, or the limit of a file.
    pub size: Option<Bytes>,
    /// Whether clients may not write.
    pub read_only: bool,
    /// The description that clients get.
    pub description: String,
}

/// An option `--export` that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("--export {text:?} is not NAME=PATH[,ro][,size=SIZE]")]
pub struct OptionError {
    text: String,
    #[source]
    size: Option<UnitError>,
}

impl ExportSpec {
    /// Parses the value of `--export`.
    ///
    /// # Errors
    /// It is not `NAME=PATH[,ro][,size=SIZE]`.
    pub fn parse_option(text: &str) -> Result<Self, OptionError> {
        let wrong = |size| OptionError {
            text: text.to_owned(),
            size,
        };
        let (name, rest) = text.split_once('=').ok_or_else(|| wrong(None))?;
        let (mut path, mut spec) = (rest, Self::default());
        // Parsed from the end, because a path may contain commas.
        while let Some((before, last)) = path.rsplit_once(',') {
            if last == "ro" {
                spec.read_only = true;
            } else if let Some(size) = last.strip_prefix("size=") {
                spec.size = Some(Bytes::from_str(size).map_err(|error| wrong(Some(error)))?);
            } else {
                break;
            }
            path = before;
        }
        if path.is_empty() {
            return Err(wrong(None));
        }
        name.clone_into(&mut spec.name);
        spec.path = (path != MEMORY).then(|| PathBuf::from(path));
        Ok(spec)
    }

    /// Parses the tables `[[export]]` of a file.
    ///
    /// # Errors
    /// It is not TOML, or has other fields; with line and column.
    pub fn parse_config(text: &str) -> Result<Vec<Self>, ParseError> {
        let table = DeTable::parse(text).map_err(|error| {
            let message = format!("this is not TOML: {}", error.message());
            ParseError::from_parser(text, error.span(), &message)
        })?;
        let mut specs = Vec::new();
        for (key, value) in table.get_ref() {
            let list = match value.get_ref() {
                DeValue::Array(list) if key.get_ref() == "export" => list,
                _ => {
                    let message = format!("{}: only [[export]] is allowed here", key.get_ref());
                    return Err(ParseError::at_offset(text, key.span().start, message));
                }
            };
            for item in list {
                let DeValue::Table(fields) = item.get_ref() else {
                    let message = "an export is a table. Write [[export]]".to_owned();
                    return Err(ParseError::at_offset(text, item.span().start, message));
                };
                let mut spec = Self::default();
                for (field, value) in fields {
                    let error = |why| ParseError::at_offset(text, value.span().start, why);
                    set(&mut spec, field.get_ref(), value.get_ref()).map_err(error)?;
                }
                specs.push(spec);
            }
        }
        Ok(specs)
    }
}

fn set(spec: &mut ExportSpec, field: &str, value: &DeValue<'_>) -> Result<(), String> {
    match (field, value) {
        ("name", DeValue::String(name)) => name.as_ref().clone_into(&mut spec.name),
        ("description", DeValue::String(text)) => text.as_ref().clone_into(&mut spec.description),
        ("path", DeValue::String(path)) => spec.path = Some(Path::new(path.as_ref()).to_owned()),
        ("memory" | "size", DeValue::String(size)) => {
            spec.size = Some(Bytes::from_str(size).map_err(|error| format!("{field}: {error}"))?);
        }
        ("read_only", DeValue::Boolean(read_only)) => spec.read_only = *read_only,
        ("name" | "description" | "path" | "memory" | "size", _) => {
            return Err(format!("{field} must be a quoted string"));
        }
        ("read_only", _) => return Err("read_only must be true or false".to_owned()),
        _ => {
            return Err(format!(
                "{field} is unknown. The fields of an export are name, path or memory, size, read_only, description"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn export_option_parses_name_path_and_suffixes() {
        let spec = ExportSpec::parse_option("a=x,y=1,size=4K,ro").unwrap();
        assert_eq!(spec.path.as_deref(), Some(Path::new("x,y=1")));
        assert_eq!((spec.size, spec.read_only), (Some(Bytes(4096)), true));
        assert_eq!(ExportSpec::parse_option("m=mem:,size=1G").unwrap().path, None);
        for wrong in ["disk", "disk=", "disk=,ro", "a=b,size=much"] {
            let error = ExportSpec::parse_option(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn config_file_lists_exports() {
        let text =
            "[[export]]\nname = 'a'\npath = '/x'\nread_only = true\n[[export]]\nname = 'b'\nmemory = '1M'\n";
        let specs = ExportSpec::parse_config(text).unwrap();
        assert_eq!(
            (specs[0].path.as_deref(), specs[0].read_only),
            (Some(Path::new("/x")), true)
        );
        assert_eq!(
            (specs[1].path.as_ref(), specs[1].size),
            (None, Some(Bytes::mib(1)))
        );
    }

    #[test]
    fn config_errors_have_line_and_column() {
        for (text, expected) in [
            ("[[export]]\nnme = 'a'\n", "2:7: nme is unknown"),
            ("[[export]]\nsize = 5\n", "2:8: size must be a quoted string"),
            ("exports = 1\n", "1:1: exports: only [[export]]"),
            ("[[export]\n", "not TOML"),
        ] {
            let error = ExportSpec::parse_config(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
