//! Reading a file of parameters: TOML, one `name = value` in each line, with the names of the kernel module's
//! parameters.

use std::fmt::Display;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use thermo_units::text::{self, ParseError};
use toml::de::{DeTable, DeValue};

/// Calls `set` with the name and value of every parameter in `file`.
///
/// # Errors
/// The file cannot be read, is not TOML, or `set` refuses a parameter. The message has file, line and column.
pub fn read<E: Display>(file: &Path, set: impl FnMut(&str, &str) -> Result<(), E>) -> anyhow::Result<()> {
    let name = file.display().to_string();
    let text = text::read_file(file).with_context(|| format!("cannot read the parameters of {name}"))?;
    parse(&text, set).map_err(|error| anyhow!(error.in_file(&name)))
}

fn parse<E: Display>(text: &str, mut set: impl FnMut(&str, &str) -> Result<(), E>) -> Result<(), ParseError> {
    let table = DeTable::parse(text).map_err(|error| {
        let message = format!("this is not TOML: {}", error.message());
        ParseError::from_parser(text, error.span(), &message)
    })?;
    for (name, value) in table.into_inner() {
        let at = value.span().start;
        let value_text = match value.get_ref() {
            DeValue::String(string) => string.to_string(),
            // The source text, because numbers may be hexadecimal.
            DeValue::Integer(_) | DeValue::Boolean(_) => {
                text.get(value.span()).unwrap_or_default().to_owned()
            }
            _ => {
                let message = format!(
                    "{} must be a number, Y or N, or a text like \"120s\"",
                    name.get_ref()
                );
                return Err(ParseError::at_offset(text, at, message));
            }
        };
        set(name.get_ref(), &value_text)
            .map_err(|error| ParseError::at_offset(text, at, format!("{}: {error}", name.get_ref())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn values_keep_their_source_text() {
        let mut values = Vec::new();
        parse(
            "a = 5 # five\nb = \"120s\"\nc = true\nd = 0x1000\n",
            |name, value| {
                values.push(format!("{name} {value}"));
                Ok::<(), String>(())
            },
        )
        .unwrap();
        values.sort();
        assert_eq!(values, ["a 5", "b 120s", "c true", "d 0x1000"]);
    }

    #[test]
    fn errors_have_line_and_column() {
        let refuse = |name: &str, _: &str| if name == "b" { Err("no") } else { Ok(()) };
        assert_eq!(
            parse("a = 1\nb = 2\n", refuse).unwrap_err().to_string(),
            "2:5: b: no"
        );
        assert!(
            parse("a = [1]", refuse)
                .unwrap_err()
                .to_string()
                .starts_with("1:5: a must be")
        );
        assert!(
            parse("a = = 1", refuse)
                .unwrap_err()
                .message
                .starts_with("this is not TOML")
        );
    }
}
