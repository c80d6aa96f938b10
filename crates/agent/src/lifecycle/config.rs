//! The configuration file (TOML). docs/guide/lifecycle.md documents every key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thermo_units::text::{self, ParseError};
use thermo_units::{Nanos, Permille};
use toml::Spanned;

use super::command::CommandTarget;
use super::rules::Rules;

mod parser;
pub(crate) use parser::user_id;

/// A configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Path of the socket; `None` for the default path.
    pub socket: Option<PathBuf>,
    /// Maximum share of one CPU that reclaim uses while it runs.
    pub duty: Permille,
    /// Interval between two reads of freezer, `oom_score_adj` and CPU time.
    pub poll: Nanos,
    /// The applications.
    pub apps: Vec<AppConfig>,
}

/// One application.
#[derive(Debug, Clone, PartialEq)]
pub struct AppConfig {
    /// Name in requests.
    pub name: String,
    /// The application's processes.
    pub target: Target,
    /// Reclaim policy.
    pub rules: Rules,
    /// Idle time after which a background application becomes cached; `None` disables this.
    pub idle_after: Option<Nanos>,
    /// The application is idle if one access check finds less than this share of its resident memory
    /// accessed.
    pub idle_touched: Permille,
    /// Line of the configuration file where the application begins.
    pub line: usize,
}

/// The processes of an application.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// The process that has this PID when the configuration is loaded, never a later one with the same PID.
    Pid(u32),
    /// All processes of a control group and its descendants.
    Cgroup(String),
    /// All processes of a systemd unit.
    Unit {
        /// Name of the unit.
        unit: String,
        /// The user whose units count in addition to those of the system.
        uid: u32,
    },
    /// All processes of a user with a matching command line.
    Command(CommandTarget),
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is invalid.
    #[error("{}", .error.in_file(&.path.display().to_string()))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The error with its line and column.
        error: ParseError,
    },
}

impl Config {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid; then with line and column of the first error.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let path = path.to_owned();
        match text::read_file(&path) {
            Ok(text) => Self::parse(&text).map_err(|error| ConfigError::Invalid { path, error }),
            Err(source) => Err(ConfigError::File { path, source }),
        }
    }

    /// Parses the text of a configuration.
    ///
    /// # Errors
    /// The first error, with its line and column.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parser::parse(text)
    }
}

#[cfg(test)]
mod tests;
