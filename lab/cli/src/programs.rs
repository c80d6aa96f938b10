//! Finds the other commands that experiments start: in the folder of this command, where `cargo build` puts
//! them, else on PATH.

use std::env;
use std::ffi::{OsStr, OsString};
use std::iter;
use std::path::PathBuf;

use anyhow::Context as _;

/// The path of this executable.
///
/// # Errors
/// When the kernel does not report the path.
pub fn current_exe() -> anyhow::Result<PathBuf> {
    env::current_exe().context("cannot find the path of this program")
}

/// The path of the command `name`.
///
/// # Errors
/// When `name` is neither in the folder of this executable nor on PATH.
pub fn find(name: &str) -> anyhow::Result<PathBuf> {
    let sibling = current_exe()?.with_file_name(name);
    first_existing(sibling.clone(), name, env::var_os("PATH")).with_context(|| {
        let sibling = sibling.display();
        format!("{name} is needed: neither {sibling} nor a {name} on PATH exists. Build it with `make build`")
    })
}

fn first_existing(sibling: PathBuf, name: &str, path: Option<OsString>) -> Option<PathBuf> {
    let path = path.unwrap_or_default();
    let on_path = env::split_paths(OsStr::new(&path)).map(|folder| folder.join(name));
    iter::once(sibling)
        .chain(on_path)
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn find_prefers_sibling_over_path() {
        let folder = tempfile::tempdir().unwrap();
        let (own_dir, path_dir) = (folder.path().join("own"), folder.path().join("path"));
        for folder in [&own_dir, &path_dir] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("thermo"), "").unwrap();
        }
        let found = || first_existing(own_dir.join("thermo"), "thermo", Some(path_dir.clone().into()));
        assert_eq!(found(), Some(own_dir.join("thermo")));
        std::fs::remove_file(own_dir.join("thermo")).unwrap();
        assert_eq!(found(), Some(path_dir.join("thermo")));
        std::fs::remove_file(path_dir.join("thermo")).unwrap();
        assert_eq!(found(), None);
    }
}
