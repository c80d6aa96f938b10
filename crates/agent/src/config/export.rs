//! `[export]`: the files for the fleet.

use std::path::Path;

use thermo_kernel::uname;
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos};
use toml::Spanned;

use super::ExportConfig;
use super::file;
use super::kubernetes::fill_in;
use super::parse::Source;

/// The files of the table.
pub(super) fn parse(
    source: &Source<'_>,
    file: file::Export,
    state_dir: &Path,
) -> Result<ExportConfig, ParseError> {
    let (every, window) = times(source, &file)?;
    let max_size = source.value(file.max_size.as_ref(), Bytes::mib(256))?;
    Ok(ExportConfig {
        every,
        window,
        folder: file.folder.map_or_else(|| state_dir.join("export"), Into::into),
        max_size: Some(max_size).filter(|size| *size > Bytes::ZERO),
        cluster: name_of_files(source, file.cluster, || "default".to_owned())?,
        node: name_of_files(source, file.node, uname::host_name)?,
        link: file.link.unwrap_or_default(),
    })
}

/// Lengths of an interval and of a window.
fn times(source: &Source<'_>, file: &file::Export) -> Result<(Nanos, Nanos), ParseError> {
    let second = Nanos::secs(1);
    let every = source.value(file.every.as_ref(), Nanos::secs(300))?;
    let is_whole = every >= second && every.0.is_multiple_of(second.0);
    if let Some(at) = file.every.as_ref().filter(|_| !is_whole) {
        return Err(source.error(at, "an interval lasts whole seconds: give 10s, 5m or the like"));
    }
    let window = source.value(file.window.as_ref(), Nanos::secs(3600).max(every))?;
    let is_multiple = window >= every && window.0.is_multiple_of(every.0);
    let given = [&file.window, &file.every].into_iter().flatten().next();
    if let Some(at) = given.filter(|_| !is_multiple) {
        let message = format!(
            "a file holds whole intervals: give a `window` that is a multiple of `every`, which is {every}"
        );
        return Err(source.error(at, message));
    }
    Ok((every, window))
}

/// A name that becomes part of file names. `${NAME}` is a variable of the environment.
fn name_of_files(
    source: &Source<'_>,
    given: Option<Spanned<String>>,
    default: impl FnOnce() -> String,
) -> Result<String, ParseError> {
    let Some(given) = given else {
        return Ok(default());
    };
    let name = fill_in(given.get_ref(), |name| std::env::var(name).ok())
        .map_err(|error| source.error(&given, error))?;
    if thermo_fleet::clean_name(&name) != name {
        let message = "the name becomes part of file names: use letters, digits, '-', '_' and '.', and begin \
                       with a letter or digit";
        return Err(source.error(&given, message));
    }
    Ok(name)
}
