//! What is served: `--export` on the command line, `[[export]]` in a file.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::{Context as _, anyhow, bail, ensure};
use thermo_nbd::Export;
use thermo_units::Bytes;
use thermo_units::text::ParseError;
use toml::de::{DeTable, DeValue};

/// The path that stands for memory.
const MEMORY: &str = "mem:";

/// What to serve.
#[derive(Debug, clap::Args)]
pub struct Exports {
    /// What to serve: NAME=PATH, a file or a block device, or NAME=mem:,size=SIZE, memory that is gone with the server.
    /// `,ro`: clients may not write; `,size=SIZE`: only the first bytes. Clients that ask for no name get the first
    #[arg(long = "export", value_name = "NAME=PATH[,ro][,size=SIZE]")]
    exports: Vec<String>,

    /// Serve also what this file lists: `[[export]]` with name, path or memory, read_only, size, description
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// One of them, before it is opened.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    name: String,
    /// None: memory.
    path: Option<PathBuf>,
    size: Option<Bytes>,
    read_only: bool,
    description: String,
}

impl Exports {
    /// Opens all of them.
    ///
    /// # Errors
    /// One cannot be opened or understood, or there is none.
    pub fn open(&self) -> anyhow::Result<Vec<Export>> {
        let mut wanted = Vec::new();
        for text in &self.exports {
            wanted.push(one(text)?);
        }
        if let Some(file) = &self.config {
            let name = file.display().to_string();
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
            wanted.extend(listed(&text).map_err(|fault| anyhow!(fault.in_file(&name)))?);
        }
        ensure!(
            !wanted.is_empty(),
            "there is nothing to serve: give --export NAME=PATH, or --config FILE"
        );
        wanted.iter().map(Wanted::open).collect()
    }
}

impl Wanted {
    fn open(&self) -> anyhow::Result<Export> {
        let export = match (&self.path, self.size) {
            (None, Some(size)) => Export::memory(&self.name, size, self.read_only)?,
            (None, None) => bail!("export {}: how much memory? Give size=SIZE", self.name),
            (Some(path), None) => Export::open(&self.name, path, self.read_only)?,
            (Some(path), Some(size)) => Export::open(&self.name, path, self.read_only)?.first(size, path)?,
        };
        Ok(export.described(&self.description))
    }
}

fn one(text: &str) -> anyhow::Result<Wanted> {
    let wrong = || format!("--export {text:?} is not NAME=PATH with ,ro or ,size=SIZE behind it");
    let (name, rest) = text.split_once('=').with_context(wrong)?;
    let (mut path, mut wanted) = (rest, Wanted::default());
    // From the end, so that a path may hold commas.
    while let Some((before, last)) = path.rsplit_once(',') {
        if last == "ro" {
            wanted.read_only = true;
        } else if let Some(size) = last.strip_prefix("size=") {
            wanted.size = Some(Bytes::from_str(size).with_context(wrong)?);
        } else {
            break;
        }
        path = before;
    }
    ensure!(!path.is_empty(), wrong());
    name.clone_into(&mut wanted.name);
    wanted.path = (path != MEMORY).then(|| PathBuf::from(path));
    Ok(wanted)
}

fn listed(text: &str) -> Result<Vec<Wanted>, ParseError> {
    let table = DeTable::parse(text).map_err(|error| {
        let message = format!("this is not TOML: {}", error.message());
        ParseError::of_parser(text, error.span(), &message)
    })?;
    let mut wanted = Vec::new();
    for (key, value) in table.get_ref() {
        let list = match value.get_ref() {
            DeValue::Array(list) if key.get_ref() == "export" => list,
            _ => {
                let message = format!("{}: only [[export]] is known here", key.get_ref());
                return Err(ParseError::at_offset(text, key.span().start, message));
            }
        };
        for item in list {
            let DeValue::Table(fields) = item.get_ref() else {
                let message = "an export is a table: write [[export]]".to_owned();
                return Err(ParseError::at_offset(text, item.span().start, message));
            };
            let mut one = Wanted::default();
            for (field, value) in fields {
                let fault = |why| ParseError::at_offset(text, value.span().start, why);
                set(&mut one, field.get_ref(), value.get_ref()).map_err(fault)?;
            }
            wanted.push(one);
        }
    }
    Ok(wanted)
}

fn set(one: &mut Wanted, field: &str, value: &DeValue<'_>) -> Result<(), String> {
    match (field, value) {
        ("name", DeValue::String(name)) => name.as_ref().clone_into(&mut one.name),
        ("description", DeValue::String(text)) => text.as_ref().clone_into(&mut one.description),
        ("path", DeValue::String(path)) => one.path = Some(Path::new(path.as_ref()).to_owned()),
        ("memory" | "size", DeValue::String(size)) => {
            one.size = Some(Bytes::from_str(size).map_err(|error| format!("{field}: {error}"))?);
        }
        ("read_only", DeValue::Boolean(read_only)) => one.read_only = *read_only,
        ("name" | "description" | "path" | "memory" | "size", _) => {
            return Err(format!("{field} must be a text in quotes"));
        }
        ("read_only", _) => return Err("read_only must be true or false".to_owned()),
        _ => {
            return Err(format!(
                "{field} is unknown; an export has name, path or memory, size, read_only, description"
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
    fn an_export_is_a_name_a_path_and_perhaps_more() {
        let wanted = one("a=x,y=1,size=4K,ro").unwrap();
        assert_eq!(wanted.path.as_deref(), Some(Path::new("x,y=1")));
        assert_eq!((wanted.size, wanted.read_only), (Some(Bytes(4096)), true));
        assert_eq!(one("m=mem:,size=1G").unwrap().path, None);
        for wrong in ["disk", "disk=", "disk=,ro", "a=b,size=much"] {
            let error = one(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
        assert!(
            one("m=mem:")
                .unwrap()
                .open()
                .unwrap_err()
                .to_string()
                .contains("size=")
        );
        let missing = one("a=/nowhere/file").unwrap().open().unwrap_err().to_string();
        assert!(missing.contains("/nowhere/file"), "{missing}");
    }

    #[test]
    fn a_file_lists_exports() {
        let text =
            "[[export]]\nname = 'a'\npath = '/x'\nread_only = true\n[[export]]\nname = 'b'\nmemory = '1M'\n";
        let wanted = listed(text).unwrap();
        assert_eq!(
            (wanted[0].path.as_deref(), wanted[0].read_only),
            (Some(Path::new("/x")), true)
        );
        assert_eq!(
            (wanted[1].path.as_ref(), wanted[1].size),
            (None, Some(Bytes::mib(1)))
        );
    }

    #[test]
    fn mistakes_in_it_have_a_place() {
        for (text, says) in [
            ("[[export]]\nnme = 'a'\n", "2:7: nme is unknown"),
            ("[[export]]\nsize = 5\n", "2:8: size must be a text"),
            ("exports = 1\n", "1:1: exports: only [[export]]"),
            ("[[export]\n", "not TOML"),
        ] {
            let fault = listed(text).unwrap_err().to_string();
            assert!(fault.contains(says), "{fault}");
        }
    }

    #[test]
    fn no_more_is_served_than_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, "12345").unwrap();
        let open = |more: &str| one(&format!("a={}{more}", path.display())).unwrap().open();
        assert_eq!(open("").unwrap().size(), 5);
        assert_eq!(open(",size=3").unwrap().size(), 3);
        assert!(open(",size=6").unwrap_err().to_string().contains("5 B"));
    }
}
