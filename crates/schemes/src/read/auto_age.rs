//! Reads the automatic age: `min_age = "auto"` and `max_refaults = "0.2%/min"`.

use thermo_engine::scheme::{AccessPattern, Age, AutoAge, Rate};
use thermo_units::text::ParseError;
use thermo_units::{Nanos, Permille, SharePerMinute};

use crate::quantity;
use crate::tree::{Fields, Node};
use crate::vocabulary::Vocabulary;

/// The fields of formats that have an automatic age.
pub(crate) const FIELDS: [&str; 2] = ["min_age", "max_refaults"];

/// Reads the automatic age of a scheme with `pattern`; `None` if there is none.
pub(crate) fn read(
    fields: &mut Fields<'_>,
    pattern: &AccessPattern,
    vocab: &Vocabulary,
) -> Result<Option<AutoAge>, ParseError> {
    let text = fields.text;
    let [min_age, max_refaults] = FIELDS.map(|name| fields.take(name));
    let Some(first) = min_age.as_ref().or(max_refaults.as_ref()) else {
        return Ok(None);
    };
    if !vocab.auto_age {
        let message = "damo's schemes have no automatic age: write this scheme as TOML";
        return Err(first.error(text, message));
    }
    let Some(min_age) = min_age else {
        let message = "max_refaults is the bound of the automatic age: add min_age = \"auto\", or remove it";
        return Err(first.error(text, message));
    };
    check_min_age(text, &min_age)?;
    check_pattern(text, &min_age, pattern)?;
    let max_refaults = max_refaults
        .map(|node| share_per_minute(text, &node))
        .transpose()?;
    Ok(Some(max_refaults.map_or_else(AutoAge::default, |max_refaults| {
        AutoAge { max_refaults }
    })))
}

fn check_min_age(text: &str, node: &Node) -> Result<(), ParseError> {
    let value = quantity::string(text, node)?;
    if value == "auto" {
        return Ok(());
    }
    let message = format!("min_age can only be \"auto\": write a fixed age as age = [{value:?}, \"max\"]");
    Err(node.error(text, message))
}

/// Returns an error if the pattern contradicts an automatic age.
fn check_pattern(text: &str, node: &Node, pattern: &AccessPattern) -> Result<(), ParseError> {
    if !matches!(pattern.age.min, Age::Time(Nanos::ZERO) | Age::Aggrs(0)) {
        let message = "age has a minimum as well: leave age out, or min_age and max_refaults";
        return Err(node.error(text, message));
    }
    if !matches!(
        pattern.nr_accesses.max,
        Rate::Permille(Permille(0)) | Rate::Samples(0)
    ) {
        let message = "the automatic age is a time without accesses: add nr_accesses = [\"0%\", \"0%\"]";
        return Err(node.error(text, message));
    }
    Ok(())
}

fn share_per_minute(text: &str, node: &Node) -> Result<SharePerMinute, ParseError> {
    let value = quantity::scalar(text, node)?;
    value
        .parse()
        .map_err(|error: thermo_units::UnitError| node.error(text, error.to_string()))
}
