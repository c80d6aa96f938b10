//! Minimum ages for each class, from the report of a fleet.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use thermo_units::text;

use crate::anchor::check_class;
use crate::error::Error;

/// Minimum ages in seconds by class. A class without one is only observed.
pub type Ages = BTreeMap<String, u64>;

/// The parts of the report that matter here: other fields are ignored.
#[derive(Debug, Deserialize)]
struct Report {
    classes: Vec<ClassReport>,
}

#[derive(Debug, Deserialize)]
struct ClassReport {
    class: String,
    advice: Option<Advice>,
}

#[derive(Debug, Deserialize)]
struct Advice {
    min_age_s: Option<f64>,
}

/// Reads the output of `thermocline-fleet report --json`:
/// `{"classes":[{"class":…,"advice":{"min_age_s":…}}]}`. A class whose advice is missing or null is only
/// observed.
///
/// # Errors
/// The file cannot be read, is no report, names a class that is not known or twice, or advises an impossible
/// age.
pub fn read_ages(path: &Path) -> Result<Ages, Error> {
    let text = text::read_file(path).map_err(Error::io(path))?;
    let report: Report = serde_json::from_str(&text).map_err(|error| {
        let way_out = "expected the output of thermocline-fleet report --json";
        Error::input(path, format!("no report of a fleet ({error}); {way_out}"))
    })?;
    let mut ages = Ages::new();
    let mut named = Vec::new();
    for ClassReport { class, advice } in report.classes {
        check_class(&class).map_err(|what| Error::input(path, what))?;
        if named.contains(&class) {
            return Err(Error::input(path, format!("the class {class} is there twice")));
        }
        if let Some(age) = advice.and_then(|advice| advice.min_age_s) {
            if !(1.0..=1e7).contains(&age) {
                let what = format!("the age {age} of {class} is impossible: give seconds, 1 to 10000000");
                return Err(Error::input(path, what));
            }
            ages.insert(class.clone(), age.round() as u64);
        }
        named.push(class);
    }
    Ok(ages)
}
