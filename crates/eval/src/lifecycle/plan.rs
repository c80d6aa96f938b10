//! The experiment as a person writes it (TOML): `workloads/experiments/lifecycle.toml` tells of each key.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use thermo_core::text::Fault;
use thermo_core::{Bytes, Nanos, Permille};
use toml::Spanned;

use crate::Error;
use crate::needs::{self, Need};

/// An experiment, read and checked.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it is called.
    pub name: String,
    /// What it asks, in a sentence.
    pub about: String,
    /// Of the script of switches.
    pub seed: u64,
    /// How many runs with and without.
    pub repeats: usize,
    /// The size of the zram swap made for it.
    pub zram: Bytes,
    /// Memory touched and freed before each run.
    pub warm: Bytes,
    /// What all applications may have together.
    pub limit: Bytes,
    /// Switches in a run.
    pub switches: usize,
    /// How long each application stays in front.
    pub dwell: Nanos,
    /// The fixture kills when tasks stalled for so long within a second.
    pub kill_stall: Nanos,
    /// The fixture kills when less than this share of swap is free.
    pub kill_swap_free: Permille,
    /// Lines added to each application in the daemon's description.
    pub rules: String,
    /// The daemon's `duty`.
    pub duty: String,
    /// The applications.
    pub apps: Vec<AppPlan>,
    /// The folder the file is in.
    pub here: PathBuf,
    /// The text it was read from.
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

fn line() -> String {
    "use\n".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    name: String,
    #[serde(default)]
    about: String,
    repeats: Spanned<usize>,
    seed: u64,
    zram: Spanned<String>,
    warm: Spanned<String>,
    limit: Spanned<String>,
    switches: Spanned<usize>,
    dwell: Spanned<String>,
    kill_stall: Spanned<String>,
    kill_swap_free: Spanned<String>,
    #[serde(default)]
    rules: String,
    duty: String,
    app: Vec<Spanned<AppPlan>>,
}

impl Plan {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or with the place of the first mistake in it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::File {
            doing: "read",
            path: path.to_owned(),
            source,
        })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let here = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        Self::parse(&text, &here).map_err(|fault| Error::Mistake {
            path: path.to_owned(),
            fault,
        })
    }

    /// Checks an experiment's text; `here` is the folder its `{here}` stands for.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str, here: &Path) -> Result<Self, Fault> {
        let file: FileText = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            Fault::at_offset(text, offset, error.message().trim_end().replace('\n', ", "))
        })?;
        for (number, least, why) in [
            (
                &file.repeats,
                1,
                "0 repeats measure nothing: 10 or more give a spread",
            ),
            (
                &file.switches,
                2,
                "without switches nobody is put away: give 2 or more",
            ),
        ] {
            if *number.get_ref() < least {
                return Err(Fault::at_offset(text, number.span().start, why));
            }
        }
        let apps = apps(text, file.app)?;
        Ok(Self {
            zram: value(text, &file.zram)?,
            warm: value(text, &file.warm)?,
            limit: value(text, &file.limit)?,
            dwell: value(text, &file.dwell)?,
            kill_stall: value(text, &file.kill_stall)?,
            kill_swap_free: value(text, &file.kill_swap_free)?,
            name: file.name,
            about: file.about,
            seed: file.seed,
            repeats: file.repeats.into_inner(),
            switches: file.switches.into_inner(),
            rules: file.rules,
            duty: file.duty,
            apps,
            here: here.to_owned(),
            text: text.to_owned(),
        })
    }

    /// Checks that every program is there.
    ///
    /// # Errors
    /// Those that are not, with their packages.
    pub fn check_programs(&self) -> Result<(), Error> {
        needs::check(self.apps.iter().flat_map(|app| &app.needs))
    }
}

fn value<T: std::str::FromStr<Err: std::fmt::Display>>(
    text: &str,
    part: &Spanned<String>,
) -> Result<T, Fault> {
    let wrong = |why| Fault::at_offset(text, part.span().start, format!("{why}"));
    part.get_ref().parse().map_err(wrong)
}

fn apps(text: &str, apps: Vec<Spanned<AppPlan>>) -> Result<Vec<AppPlan>, Fault> {
    if apps.len() < 2 {
        return Err(Fault::new(1, 1, "switching takes two applications: add [[app]]"));
    }
    let mut known: Vec<AppPlan> = Vec::new();
    for app in apps {
        let place = app.span().start;
        let app = app.into_inner();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if app.name.is_empty() || !app.name.chars().all(is_word) {
            let why = "a name is of letters, digits and -: it is that of a control group";
            return Err(Fault::at_offset(text, place, why));
        }
        if app.command.is_empty() || known.iter().any(|other| other.name == app.name) {
            let why = format!("{}: it needs a command, and a name of its own", app.name);
            return Err(Fault::at_offset(text, place, why));
        }
        known.push(app);
    }
    Ok(known)
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
