//! Reading a file of parameters: TOML, one `name = value` a line, names as the kernel module's files have them.

use std::fmt::Display;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use thermo_units::text::ParseError;
use toml::de::{DeTable, DeValue};

/// Gives every parameter of `file` to `set`, by its name and value.
///
/// # Errors
/// It cannot be read, is not TOML, or `set` refuses a parameter: its file, line and column, and why.
pub fn read<E: Display>(file: &Path, set: impl FnMut(&str, &str) -> Result<(), E>) -> anyhow::Result<()> {
    let name = file.display().to_string();
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read the parameters of {name}"))?;
    parse(&text, set).map_err(|fault| anyhow!(fault.in_file(&name)))
}

fn parse<E: Display>(text: &str, mut set: impl FnMut(&str, &str) -> Result<(), E>) -> Result<(), ParseError> {
    let table = DeTable::parse(text).map_err(|error| {
        let message = format!("this is not TOML: {}", error.message());
        ParseError::of_parser(text, error.span(), &message)
    })?;
    for (name, value) in table.into_inner() {
        let at = value.span().start;
        let word = match value.get_ref() {
            DeValue::String(words) => words.to_string(),
            // As it stands there: numbers may be hexadecimal.
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
        set(name.get_ref(), &word)
            .map_err(|why| ParseError::at_offset(text, at, format!("{}: {why}", name.get_ref())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn values_come_as_they_stand() {
        let mut got = Vec::new();
        parse(
            "a = 5 # five\nb = \"120s\"\nc = true\nd = 0x1000\n",
            |name, value| {
                got.push(format!("{name} {value}"));
                Ok::<(), String>(())
            },
        )
        .unwrap();
        got.sort();
        assert_eq!(got, ["a 5", "b 120s", "c true", "d 0x1000"]);
    }

    #[test]
    fn mistakes_have_a_place() {
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
