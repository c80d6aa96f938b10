//! Reading a file of schemes that a user named.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use thermo_engine::Scheme;

/// All schemes of `file`. A file with one bad scheme gives none.
///
/// # Errors
/// It cannot be read, or holds a mistake: its file, line and column, and what would be right.
pub fn read(file: &Path) -> anyhow::Result<Vec<Scheme>> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the schemes of {name}"))?;
    thermo_schemes::parse(&name, &text).map_err(|fault| anyhow!(fault.in_file(&name)))
}
