//! The experiment as a person writes it (TOML): `workloads/experiments/lifecycle.toml` tells of each key.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos, Permille};

use crate::Error;
use crate::needs::{self, Need};
use crate::text::{self, Place};

/// An experiment, read and checked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What it is called.
    pub name: String,
    /// What it asks, in a sentence.
    #[serde(default)]
    pub about: String,
    /// Of the script of switches.
    pub seed: u64,
    /// How many runs with and without.
    #[serde(deserialize_with = "repeats")]
    pub repeats: usize,
    /// The size of the zram swap made for it.
    #[serde(deserialize_with = "text::word")]
    pub zram: Bytes,
    /// Memory touched and freed before each run.
    #[serde(deserialize_with = "text::word")]
    pub warm: Bytes,
    /// What all applications may have together.
    #[serde(deserialize_with = "text::word")]
    pub limit: Bytes,
    /// Switches in a run.
    #[serde(deserialize_with = "switches")]
    pub switches: usize,
    /// How long each application stays in front.
    #[serde(deserialize_with = "text::word")]
    pub dwell: Nanos,
    /// The fixture kills when tasks stalled for so long within a second.
    #[serde(deserialize_with = "text::word")]
    pub kill_stall: Nanos,
    /// The fixture kills when less than this share of swap is free.
    #[serde(deserialize_with = "text::word")]
    pub kill_swap_free: Permille,
    /// Lines added to each application in the daemon's description.
    #[serde(default)]
    pub rules: String,
    /// The daemon's `duty`.
    pub duty: String,
    /// The applications.
    #[serde(rename = "app")]
    pub apps: Vec<AppPlan>,
    /// The folder the file is in.
    #[serde(skip)]
    pub here: PathBuf,
    /// The text it was read from.
    #[serde(skip)]
    pub text: String,
}

/// One application.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppPlan {
    /// What it is called.
    pub name: String,
    /// Programs it needs.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// A TCP port of this machine it is spoken to at; on its standard input when not given.
    pub connect: Option<String>,
    /// Said once it runs; its answer holds `ready`.
    #[serde(default)]
    pub first: String,
    /// Said to have it used; its answer holds `done`.
    #[serde(default = "line")]
    pub say: String,
}

/// Where the applications stand.
#[derive(Deserialize)]
struct Places {
    app: Vec<Place>,
}

fn line() -> String {
    "use\n".to_owned()
}

fn repeats<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    text::checked(from, |&repeats: &usize| {
        (repeats < 1).then(|| "0 repeats measure nothing: 10 or more give a spread".to_owned())
    })
}

fn switches<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    text::checked(from, |&switches: &usize| {
        (switches < 2).then(|| "without switches nobody is put away: give 2 or more".to_owned())
    })
}

impl Plan {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or with the place of the first mistake in it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        text::read(path, Self::parse)
    }

    /// Checks an experiment's text; `here` is the folder its `{here}` stands for.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str, here: &Path) -> Result<Self, ParseError> {
        let read: Self = text::parse(text)?;
        check(text, &read.apps)?;
        let (here, text) = (here.to_owned(), text.to_owned());
        Ok(Self { here, text, ..read })
    }

    /// Checks that every program is there.
    ///
    /// # Errors
    /// Those that are not, with their packages.
    pub fn check_programs(&self) -> Result<(), Error> {
        needs::check(self.apps.iter().flat_map(|app| &app.needs))
    }
}

fn check(text: &str, apps: &[AppPlan]) -> Result<(), ParseError> {
    if apps.len() < 2 {
        return Err(ParseError::new(
            1,
            1,
            "switching takes two applications: add [[app]]",
        ));
    }
    let places: Places = text::parse(text)?;
    for (nth, (place, app)) in places.app.iter().zip(apps).enumerate() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if app.name.is_empty() || !app.name.chars().all(is_word) {
            let why = "a name is of letters, digits and -: it is that of a control group";
            return Err(text::fault(text, place, why));
        }
        if app.command.is_empty() || apps[..nth].iter().any(|other| other.name == app.name) {
            let why = format!("{}: it needs a command, and a name of its own", app.name);
            return Err(text::fault(text, place, why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn the_ready_experiment_is_whole() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/experiments/lifecycle.toml");
        let plan = Plan::read(&file).unwrap();
        assert!(plan.apps.len() >= 8 && plan.repeats >= 10);
        assert!(plan.apps.iter().all(|app| !app.needs.is_empty()));
    }

    #[test]
    fn mistakes_have_a_place() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/experiments/lifecycle.toml");
        let text = std::fs::read_to_string(file).unwrap();
        for (good, bad, says) in [
            ("repeats = 10", "repeats = 0", "measure nothing"),
            ("switches = 60", "switches = 1", "2 or more"),
            ("limit = \"480M\"", "limit = \"much\"", "much"),
            ("seed = 1", "speed = 1", "unknown field"),
            ("name = \"node\"", "name = \"python\"", "of its own"),
            ("name = \"node\"", "name = \"a/b\"", "control group"),
        ] {
            assert!(text.contains(good));
            let fault = Plan::parse(&text.replacen(good, bad, 1), Path::new(".")).unwrap_err();
            assert!(fault.message.contains(says) && fault.line > 1, "{bad}: {fault}");
        }
    }
}
