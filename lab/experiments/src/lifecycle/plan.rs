//! The experiment file (TOML). `workloads/experiments/lifecycle.toml` documents each key.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos, Permille};

use crate::Error;
use crate::needs::{self, Need};
use crate::text::{self, Location};

/// A parsed and validated experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Name.
    pub name: String,
    /// The question that the experiment answers, in a sentence.
    #[serde(default)]
    pub about: String,
    /// Seed of the script of switches.
    pub seed: u64,
    /// Number of runs of each arm.
    #[serde(deserialize_with = "repeats")]
    pub repeats: usize,
    /// Size of the zram swap that exists during the experiment.
    #[serde(deserialize_with = "text::parsed")]
    pub zram: Bytes,
    /// Memory to touch and free before each run.
    #[serde(deserialize_with = "text::parsed")]
    pub warm: Bytes,
    /// Memory limit of all applications together.
    #[serde(deserialize_with = "text::parsed")]
    pub limit: Bytes,
    /// Switches in a run.
    #[serde(deserialize_with = "switches")]
    pub switches: usize,
    /// Time that each application stays in the foreground.
    #[serde(deserialize_with = "text::parsed")]
    pub dwell: Nanos,
    /// Kill an application when tasks stalled for this long within a second.
    #[serde(deserialize_with = "text::parsed")]
    pub kill_stall: Nanos,
    /// Kill an application when less than this share of swap is free.
    #[serde(deserialize_with = "text::parsed")]
    pub kill_swap_free: Permille,
    /// Lines added to each application in the daemon's configuration.
    #[serde(default)]
    pub rules: String,
    /// The daemon's `duty`.
    pub duty: String,
    /// The applications.
    #[serde(rename = "app")]
    pub apps: Vec<AppPlan>,
    /// The folder of the file, for the placeholder `{here}`.
    #[serde(skip)]
    pub here: PathBuf,
    /// The text of the file.
    #[serde(skip)]
    pub text: String,
}

/// An application.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppPlan {
    /// Name.
    pub name: String,
    /// Programs that must be installed.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Local TCP port for requests; standard input when not given.
    pub connect: Option<String>,
    /// Request sent after the start. The reply contains `ready`.
    #[serde(default)]
    pub first: String,
    /// Request that makes the application access its data. The reply contains `done`.
    #[serde(default = "default_request")]
    pub say: String,
}

/// Positions of the applications in the text.
#[derive(Deserialize)]
struct Locations {
    app: Vec<Location>,
}

fn default_request() -> String {
    "use\n".to_owned()
}

fn repeats<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    text::deserialize_checked(from, |&repeats: &usize| {
        (repeats < 1).then(|| "0 repeats measure nothing: use at least 1, or 10 to see the spread".to_owned())
    })
}

fn switches<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    text::deserialize_checked(from, |&switches: &usize| {
        (switches < 2).then(|| "no application goes to the background: use 2 or more switches".to_owned())
    })
}

impl Plan {
    /// Reads and validates the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, or the first error in it with its position.
    pub fn read(path: &Path) -> Result<Self, Error> {
        text::read(path, Self::parse)
    }

    /// Parses and validates the text of an experiment. `here` is the value of the placeholder `{here}`.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn parse(text: &str, here: &Path) -> Result<Self, ParseError> {
        let parsed: Self = text::parse(text)?;
        check(text, &parsed.apps)?;
        let (here, text) = (here.to_owned(), text.to_owned());
        Ok(Self { here, text, ..parsed })
    }

    /// Checks that every program is installed.
    ///
    /// # Errors
    /// The missing programs, with their packages.
    pub fn check_programs(&self) -> Result<(), Error> {
        needs::check(self.apps.iter().flat_map(|app| &app.needs))
    }
}

fn check(text: &str, apps: &[AppPlan]) -> Result<(), ParseError> {
    if apps.len() < 2 {
        return Err(ParseError::new(
            1,
            1,
            "switching needs two applications: add [[app]]",
        ));
    }
    let locations: Locations = text::parse(text)?;
    for (nth, (location, app)) in locations.app.iter().zip(apps).enumerate() {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if app.name.is_empty() || !app.name.chars().all(is_allowed) {
            let message = format!(
                "{:?} is not a valid name: use letters, digits and '-', it names a control group",
                app.name
            );
            return Err(text::error_at(text, location, message));
        }
        if app.command.is_empty() || apps[..nth].iter().any(|other| other.name == app.name) {
            let message = format!("{}: each application needs a command and a unique name", app.name);
            return Err(text::error_at(text, location, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn shipped_experiment_is_valid() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/experiments/lifecycle.toml");
        let plan = Plan::read(&file).unwrap();
        assert!(plan.apps.len() >= 8 && plan.repeats >= 10);
        assert!(plan.apps.iter().all(|app| !app.needs.is_empty()));
    }

    #[test]
    fn errors_have_position() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/experiments/lifecycle.toml");
        let text = std::fs::read_to_string(file).unwrap();
        for (good, bad, message) in [
            ("repeats = 10", "repeats = 0", "measure nothing"),
            ("switches = 60", "switches = 1", "2 or more"),
            ("limit = \"480M\"", "limit = \"much\"", "much"),
            ("seed = 1", "speed = 1", "unknown field"),
            ("name = \"node\"", "name = \"python\"", "unique name"),
            ("name = \"node\"", "name = \"a/b\"", "control group"),
        ] {
            assert!(text.contains(good));
            let error = Plan::parse(&text.replacen(good, bad, 1), Path::new(".")).unwrap_err();
            assert!(
                error.message.contains(message) && error.line > 1,
                "{bad}: {error}"
            );
        }
    }
}
