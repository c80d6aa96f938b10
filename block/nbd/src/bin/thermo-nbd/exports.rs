//! The exports: `--export` on the command line, `[[export]]` in a file.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail, ensure};
use thermo_nbd::{Export, ExportSpec};
use thermo_units::text;

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

impl Exports {
    /// Opens all exports.
    ///
    /// # Errors
    /// An export cannot be parsed or opened, or none is given.
    pub fn open(&self) -> anyhow::Result<Vec<Export>> {
        let mut specs = Vec::new();
        for text in &self.exports {
            specs.push(ExportSpec::parse_option(text)?);
        }
        if let Some(file) = &self.config {
            let name = file.display().to_string();
            let text = text::read_file(file).with_context(|| format!("cannot read {name}"))?;
            specs.extend(ExportSpec::parse_config(&text).map_err(|error| anyhow!(error.in_file(&name)))?);
        }
        ensure!(
            !specs.is_empty(),
            "no export is given. Use --export NAME=PATH or --config FILE"
        );
        specs.iter().map(|spec| open(spec, self.force)).collect()
    }
}

fn open(spec: &ExportSpec, force: bool) -> anyhow::Result<Export> {
    let open_file = if force {
        Export::open_without_lock
    } else {
        Export::open
    };
    let (name, read_only) = (&spec.name, spec.read_only);
    let export = match (&spec.path, spec.size) {
        (None, Some(size)) => Export::memory(name, size, read_only)?,
        (None, None) => bail!("export {name} is memory without a size. Add size=SIZE"),
        (Some(path), None) => open_file(name, path, read_only)?,
        (Some(path), Some(size)) => open_file(name, path, read_only)?.limited_to(size, path)?,
    };
    Ok(export.with_description(&spec.description))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn open_option(text: &str) -> anyhow::Result<Export> {
        open(&ExportSpec::parse_option(text)?, false)
    }

    #[test]
    fn export_that_cannot_be_opened_is_named() {
        assert!(open_option("m=mem:").unwrap_err().to_string().contains("size="));
        let missing = open_option("a=/nowhere/file").unwrap_err().to_string();
        assert!(missing.contains("/nowhere/file"), "{missing}");
    }

    #[test]
    fn export_size_must_fit_in_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, "12345").unwrap();
        let open = |more: &str| open_option(&format!("a={}{more}", path.display()));
        assert_eq!(open("").unwrap().size(), 5);
        assert_eq!(open(",size=3").unwrap().size(), 3);
        assert!(open(",size=6").unwrap_err().to_string().contains("5 B"));
    }
}
