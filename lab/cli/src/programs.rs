//! The other commands that experiments start: beside this one, as `cargo build` leaves them, else on PATH.

use std::env;
use std::ffi::{OsStr, OsString};
use std::iter;
use std::path::PathBuf;

use anyhow::Context as _;

/// Where this command is.
///
/// # Errors
/// The system does not say.
pub fn ourselves() -> anyhow::Result<PathBuf> {
    env::current_exe().context("cannot tell where this program is")
}

/// Where the command `name` is.
///
/// # Errors
/// It is neither beside this one nor on PATH.
pub fn find(name: &str) -> anyhow::Result<PathBuf> {
    let beside = ourselves()?.with_file_name(name);
    first(beside.clone(), name, env::var_os("PATH")).with_context(|| {
        let beside = beside.display();
        format!("{name} is needed: there is no {beside}, and none on PATH. `make build` makes both")
    })
}

fn first(beside: PathBuf, name: &str, path: Option<OsString>) -> Option<PathBuf> {
    let path = path.unwrap_or_default();
    let on_path = env::split_paths(OsStr::new(&path)).map(|folder| folder.join(name));
    iter::once(beside)
        .chain(on_path)
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn program_beside_us_comes_before_one_on_path() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        for folder in [&ours, &theirs] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("thermo"), "").unwrap();
        }
        let look = || first(ours.join("thermo"), "thermo", Some(theirs.clone().into()));
        assert_eq!(look(), Some(ours.join("thermo")));
        std::fs::remove_file(ours.join("thermo")).unwrap();
        assert_eq!(look(), Some(theirs.join("thermo")));
        std::fs::remove_file(theirs.join("thermo")).unwrap();
        assert_eq!(look(), None);
    }
}
