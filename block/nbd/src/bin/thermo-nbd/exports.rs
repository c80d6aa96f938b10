//! The exports: `--export` on the command line, `[[export]]` in a file.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::{Context as _, anyhow, bail, ensure};
use thermo_nbd::Export;
use thermo_units::Bytes;
use thermo_units::text::ParseError;
use toml::de::{DeTable, DeValue};

/// The path that means memory.
const MEMORY: &str = "mem:";

/// Options that define the exports.
#[derive(Debug, clap::Args)]
pub struct Exports {
    /// Export NAME=PATH, a file or block device, or NAME=mem:,size=SIZE, memory that is lost when the server
    /// ends. `,ro`: clients may not write; `,size=SIZE`: only the first SIZE bytes. Clients that request no
    /// name get the first export
    #[arg(long = "export", value_name = "NAME=PATH[,ro][,size=SIZE]")]
    exports: Vec<String>,

    /// File with further exports: `[[export]]` with name, path or memory, read_only, size, description
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Serve files and block devices even if another program uses them, without a lock. If both write, data
    /// may be lost
    #[arg(long)]
    force: bool,
}

/// The definition of an export.
#[derive(Debug, Default, PartialEq)]
struct ExportSpec {
    name: String,
    /// `None`: memory.
    path: Option<PathBuf>,
    size: Option<Bytes>,
    read_only: bool,
    description: String,
}

impl Exports {
    /// Opens all exports.
    ///
    /// # Errors
    /// An export cannot be parsed or opened, or none is given.
    pub fn open(&self) -> anyhow::Result<Vec<Export>> {
        let mut specs = Vec::new();
        for text in &self.exports {
            specs.push(parse_spec(text)?);
        }
        if let Some(file) = &self.config {
            let name = file.display().to_string();
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
            specs.extend(parse_config(&text).map_err(|error| anyhow!(error.in_file(&name)))?);
        }
        ensure!(
            !specs.is_empty(),
            "no export is given. Use --export NAME=PATH or --config FILE"
        );
        specs.iter().map(|spec| spec.open(self.force)).collect()
    }
}

impl ExportSpec {
    fn open(&self, force: bool) -> anyhow::Result<Export> {
        let open_file = if force {
            Export::open_without_lock
        } else {
            Export::open
        };
        let export = match (&self.path, self.size) {
            (None, Some(size)) => Export::memory(&self.name, size, self.read_only)?,
            (None, None) => bail!("export {} is memory without a size. Add size=SIZE", self.name),
            (Some(path), None) => open_file(&self.name, path, self.read_only)?,
            (Some(path), Some(size)) => {
                open_file(&self.name, path, self.read_only)?.limited_to(size, path)?
            }
        };
        Ok(export.with_description(&self.description))
    }
}

fn parse_spec(text: &str) -> anyhow::Result<ExportSpec> {
    let wrong = || format!("--export {text:?} is not NAME=PATH[,ro][,size=SIZE]");
    let (name, rest) = text.split_once('=').with_context(wrong)?;
    let (mut path, mut spec) = (rest, ExportSpec::default());
    // Parsed from the end, because a path may contain commas.
    while let Some((before, last)) = path.rsplit_once(',') {
        if last == "ro" {
            spec.read_only = true;
        } else if let Some(size) = last.strip_prefix("size=") {
            spec.size = Some(Bytes::from_str(size).with_context(wrong)?);
        } else {
            break;
        }
        path = before;
    }
    ensure!(!path.is_empty(), wrong());
    name.clone_into(&mut spec.name);
    spec.path = (path != MEMORY).then(|| PathBuf::from(path));
    Ok(spec)
}

fn parse_config(text: &str) -> Result<Vec<ExportSpec>, ParseError> {
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
            let mut spec = ExportSpec::default();
            for (field, value) in fields {
                let error = |why| ParseError::at_offset(text, value.span().start, why);
                set(&mut spec, field.get_ref(), value.get_ref()).map_err(error)?;
            }
            specs.push(spec);
        }
    }
    Ok(specs)
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
        let spec = parse_spec("a=x,y=1,size=4K,ro").unwrap();
        assert_eq!(spec.path.as_deref(), Some(Path::new("x,y=1")));
        assert_eq!((spec.size, spec.read_only), (Some(Bytes(4096)), true));
        assert_eq!(parse_spec("m=mem:,size=1G").unwrap().path, None);
        for wrong in ["disk", "disk=", "disk=,ro", "a=b,size=much"] {
            let error = parse_spec(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
        assert!(
            parse_spec("m=mem:")
                .unwrap()
                .open(false)
                .unwrap_err()
                .to_string()
                .contains("size=")
        );
        let missing = parse_spec("a=/nowhere/file")
            .unwrap()
            .open(false)
            .unwrap_err()
            .to_string();
        assert!(missing.contains("/nowhere/file"), "{missing}");
    }

    #[test]
    fn config_file_lists_exports() {
        let text =
            "[[export]]\nname = 'a'\npath = '/x'\nread_only = true\n[[export]]\nname = 'b'\nmemory = '1M'\n";
        let specs = parse_config(text).unwrap();
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
            let error = parse_config(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn export_size_must_fit_in_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, "12345").unwrap();
        let open = |more: &str| {
            parse_spec(&format!("a={}{more}", path.display()))
                .unwrap()
                .open(false)
        };
        assert_eq!(open("").unwrap().size(), 5);
        assert_eq!(open(",size=3").unwrap().size(), 3);
        assert!(open(",size=6").unwrap_err().to_string().contains("5 B"));
    }
}
