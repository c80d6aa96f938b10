//! The description of applications as a person writes it (TOML); docs/guide/lifecycle.md tells of every key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use regex::Regex;
use thermo_units::text::ParseError;
use thermo_units::{Nanos, Permille};
use toml::Spanned;

use super::rules::Rules;

mod raw;

/// Everything a description says.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where requests are taken; the default place when not given.
    pub socket: Option<PathBuf>,
    /// Share of one CPU that reclaim uses while it goes on.
    pub duty: Permille,
    /// How often the sources are looked at.
    pub poll: Nanos,
    /// The applications.
    pub apps: Vec<AppConfig>,
}

/// One application.
#[derive(Debug, Clone, PartialEq)]
pub struct AppConfig {
    /// What it is called in requests.
    pub name: String,
    /// Which processes it is.
    pub target: Target,
    /// What is done to it, and when not.
    pub rules: Rules,
    /// Idle for so long in the background, it is cached; never by itself when not given.
    pub idle_after: Option<Nanos>,
    /// Of an application that runs now and then: it is idle when it touches less than this of its memory in a look.
    pub idle_touched: Permille,
    /// The line its description begins in.
    pub line: usize,
}

/// Which processes an application is.
#[derive(Debug, Clone)]
pub enum Target {
    /// This one, and never another of the same number.
    Pid(u32),
    /// All of a control group and of those below it.
    Cgroup(String),
    /// All of a systemd unit.
    Unit(String),
    /// All whose command line, its words joined by blanks, matches.
    Command(Regex),
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pid(a), Self::Pid(b)) => a == b,
            (Self::Cgroup(a), Self::Cgroup(b)) | (Self::Unit(a), Self::Unit(b)) => a == b,
            (Self::Command(a), Self::Command(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

/// Why a description cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// It has a mistake.
    #[error("{}", .fault.in_file(&.path.display().to_string()))]
    Mistake {
        /// The file.
        path: PathBuf,
        /// What and where.
        fault: ParseError,
    },
}

impl Config {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or with the place of the first mistake in it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let path = path.to_owned();
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).map_err(|fault| ConfigError::Mistake { path, fault }),
            Err(source) => Err(ConfigError::File { path, source }),
        }
    }

    /// Checks a description's text.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        raw::parse(text)
    }
}

#[cfg(test)]
mod tests;
