//! Reading a file of schemes.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use thermo_engine::Scheme;
use thermo_units::text;

/// All schemes of `file`. One wrong scheme makes the whole file an error.
///
/// # Errors
/// The file cannot be read or holds a mistake. The message has file, line and column, and a correction.
pub fn read(file: &Path) -> anyhow::Result<Vec<Scheme>> {
    let name = file.display().to_string();
    let text = text::read_file(file).with_context(|| format!("cannot read the schemes of {name}"))?;
    thermo_schemes::parse(&name, &text).map_err(|error| anyhow!(error.in_file(&name)))
}
