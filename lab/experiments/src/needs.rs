//! The programs an experiment needs: whether they are there is asked before anything else is done.

use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// A program and the Debian package that has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// The program, as found on `PATH`, or a path.
    pub program: String,
    /// The package.
    pub package: String,
}

/// Checks that every program is there.
///
/// # Errors
/// Those that are not, each once, with their packages.
pub(crate) fn check<'a>(needs: impl Iterator<Item = &'a Need>) -> Result<(), Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |need: &Need| {
        let program = Path::new(&need.program);
        program.is_absolute() && program.exists()
            || std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    let mut missing: Vec<Need> = needs.filter(|need| !is_there(need)).cloned().collect();
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Error::Missing(missing))
    }
}

/// The programs of `needs` in words.
pub(crate) fn programs(needs: &[Need]) -> String {
    let names: Vec<&str> = needs.iter().map(|need| need.program.as_str()).collect();
    names.join(", ")
}

/// Their packages as words of a command, each once.
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
    fn what_is_missing_is_named_once_with_its_package() {
        let needs = [
            need("no-such-program-b", "pack"),
            need("sh", "dash"),
            need("/bin/sh", "dash"),
            need("no-such-program-a", "pack"),
            need("no-such-program-b", "pack"),
        ];
        assert!(check(needs[1..3].iter()).is_ok());
        let told = check(needs.iter()).unwrap_err().to_string();
        let right = "missing: no-such-program-a, no-such-program-b. Install them with: apt-get install pack";
        assert_eq!(told, right);
    }
}
