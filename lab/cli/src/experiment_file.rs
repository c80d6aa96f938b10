//! The experiment file of a subcommand, if the user names none.

use std::path::{Path, PathBuf};

/// Where the package installs workloads and experiments.
const INSTALLED: &str = "/usr/share/thermo-lab";

/// `workloads/experiments/NAME.toml` in the current directory; if there is none, the installed file, if there
/// is that.
pub fn default_for(name: &str) -> PathBuf {
    choose(name, Path::new(""), Path::new(INSTALLED))
}

fn choose(name: &str, here: &Path, installed: &Path) -> PathBuf {
    let file = format!("workloads/experiments/{name}.toml");
    let (here, installed) = (here.join(&file), installed.join(&file));
    if !here.exists() && installed.exists() {
        installed
    } else {
        here
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn current_directory_comes_before_the_installed_file() {
        let root = tempfile::tempdir().unwrap();
        let (here, installed) = (root.path().join("here"), root.path().join("installed"));
        let chosen = || choose("reclaim", &here, &installed);
        // Neither exists: the error will name the file of the source tree.
        assert!(chosen().starts_with(&here));
        for folder in [&installed, &here] {
            std::fs::create_dir_all(folder.join("workloads/experiments")).unwrap();
            std::fs::write(folder.join("workloads/experiments/reclaim.toml"), "").unwrap();
            assert!(chosen().starts_with(folder));
        }
    }
}
