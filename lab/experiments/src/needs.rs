//! The programs an experiment needs. They are checked before anything is set up.

use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// A program and its Debian package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Name of a program on `PATH`, or an absolute path.
    pub program: String,
    /// Name of the Debian package.
    pub package: String,
}

/// Checks that every program is installed.
///
/// # Errors
/// The missing programs, each once, with their packages.
pub(crate) fn check<'a>(needs: impl Iterator<Item = &'a Need>) -> Result<(), Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed = |need: &Need| {
        let program = Path::new(&need.program);
        program.is_absolute() && program.exists()
            || std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    let mut missing: Vec<Need> = needs.filter(|need| !is_installed(need)).cloned().collect();
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Error::Missing(missing))
    }
}

/// The programs of `needs`, separated by commas.
pub(crate) fn programs(needs: &[Need]) -> String {
    let names: Vec<&str> = needs.iter().map(|need| need.program.as_str()).collect();
    names.join(", ")
}

/// The packages of `needs` as arguments of a command, each once.
pub(crate) fn packages(needs: &[Need]) -> String {
    let names: std::collections::BTreeSet<&str> = needs.iter().map(|need| need.package.as_str()).collect();
    names.into_iter().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn need(program: &str, package: &str) -> Need {
        let (program, package) = (program.to_owned(), package.to_owned());
        Need { program, package }
    }

    #[test]
    fn missing_programs_are_listed_once_with_packages() {
        let needs = [
            need("no-such-program-b", "pack"),
            need("sh", "dash"),
            need("/bin/sh", "dash"),
            need("no-such-program-a", "pack"),
            need("no-such-program-b", "pack"),
        ];
        assert!(check(needs[1..3].iter()).is_ok());
        let message = check(needs.iter()).unwrap_err().to_string();
        let expected =
            "missing: no-such-program-a, no-such-program-b. Install them with: apt-get install pack";
        assert_eq!(message, expected);
    }
}
