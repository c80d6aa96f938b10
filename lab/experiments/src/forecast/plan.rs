//! The experiment file (TOML). `workloads/experiments/forecast.toml` documents each key.

use std::path::Path;
#[cfg(test)]
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos};

use crate::Error;
use crate::needs::Need;
use crate::placeholder::Values;
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
    /// Size of the zram swap of each run.
    #[serde(deserialize_with = "text::parsed")]
    pub zram: Bytes,
    /// Time between the start of the load and monitoring.
    #[serde(deserialize_with = "text::parsed")]
    pub warm_up: Nanos,
    /// How long `thermo advise` monitors.
    #[serde(deserialize_with = "text::parsed")]
    pub watch: Nanos,
    /// The minimum ages to compare.
    #[serde(deserialize_with = "ages")]
    pub ages: Vec<Nanos>,
    /// Number of runs with each age.
    pub rounds: usize,
    /// Time that is not counted, in addition to the age.
    #[serde(deserialize_with = "text::parsed")]
    pub settle: Nanos,
    /// Time that is counted.
    #[serde(deserialize_with = "text::parsed")]
    pub each: Nanos,
    /// CPU budget of monitoring, e.g. `1%`.
    pub cpu: String,
    /// The workloads.
    #[serde(rename = "workload")]
    pub workloads: Vec<WorkloadPlan>,
}

/// A workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadPlan {
    /// Name.
    pub name: String,
    /// Programs that must be installed.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The program that starts the workload, and its arguments.
    pub start: Vec<String>,
    /// Flags of `thermo advise` and `thermo reclaim`.
    #[serde(default)]
    pub flags: Vec<String>,
}

/// Positions of the workloads in the text.
#[derive(Deserialize)]
struct Locations {
    workload: Vec<Location>,
}

fn ages<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Nanos>, D::Error> {
    let texts: Vec<String> = Vec::deserialize(from)?;
    let ages = texts.iter().map(|age| age.parse());
    ages.collect::<Result<_, _>>().map_err(serde::de::Error::custom)
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
        let mut plan: Self = text::parse(text)?;
        check(text, &plan.workloads)?;
        let values = Values::default().with("here", here.display());
        for workload in &mut plan.workloads {
            workload.start = values.fill_all(&workload.start);
        }
        Ok(plan)
    }

    /// Keeps only the workloads named in `names`; all if there are none.
    ///
    /// # Errors
    /// A name that no workload has.
    pub fn select(&mut self, names: &[String]) -> Result<(), Error> {
        let known = |name: &&String| !self.workloads.iter().any(|workload| workload.name == **name);
        if let Some(name) = names.iter().find(known) {
            let known: Vec<&str> = self.workloads.iter().map(|workload| &*workload.name).collect();
            return Err(Error::Unknown {
                name: name.clone(),
                known: known.join(", "),
            });
        }
        self.workloads
            .retain(|workload| names.is_empty() || names.contains(&workload.name));
        Ok(())
    }
}

fn check(text: &str, workloads: &[WorkloadPlan]) -> Result<(), ParseError> {
    let locations: Locations = text::parse(text)?;
    for (nth, (location, workload)) in locations.workload.iter().zip(workloads).enumerate() {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if workload.name.is_empty() || !workload.name.chars().all(is_allowed) {
            let message = format!(
                "{:?} is not a valid name: use letters, digits and '-', it names a control group",
                workload.name
            );
            return Err(text::error_at(text, location, message));
        }
        let is_known = workloads
            .iter()
            .take(nth)
            .any(|other| other.name == workload.name);
        if workload.start.is_empty() || is_known {
            let message = format!("{}: each workload needs `start` and a unique name", workload.name);
            return Err(text::error_at(text, location, message));
        }
    }
    Ok(())
}

/// The path of the shipped experiment file, for tests.
#[cfg(test)]
pub(super) fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/experiments/forecast.toml")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn shipped_experiment_is_valid() {
        let mut plan = Plan::read(&shipped()).unwrap();
        assert!(plan.workloads.len() >= 8 && plan.ages.len() >= 3 && plan.rounds == 3);
        for workload in &plan.workloads {
            assert!(!workload.needs.is_empty() && Path::new(&workload.start[0]).exists());
        }
        plan.select(&["node".to_owned(), "java".to_owned()]).unwrap();
        assert_eq!(plan.workloads.len(), 2);
        let message = plan.select(&["nodes".to_owned()]).unwrap_err().to_string();
        assert!(message.contains("node, java"), "{message}");
    }

    #[test]
    fn errors_have_position() {
        let text = std::fs::read_to_string(shipped()).unwrap();
        for (good, bad, message) in [
            ("rounds = 3", "rounds = \"three\"", "expected usize"),
            ("\"30s\"", "\"30x\"", "30x"),
            ("settle =", "settles =", "unknown field"),
            ("name = \"node\"", "name = \"java\"", "unique name"),
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
