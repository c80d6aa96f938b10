//! Shares per minute: the unit of bounds on refaults.

use std::fmt;
use std::str::FromStr;

use crate::Bytes;
use crate::number::{UnitError, split_unit};

/// A share of memory per minute, in millionths: `0.2%/min` is 2000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SharePerMinute(pub u32);

impl SharePerMinute {
    /// This share of `whole`, per minute.
    #[must_use]
    pub fn of(self, whole: Bytes) -> Bytes {
        let share = u128::from(whole.0) * u128::from(self.0) / 1_000_000;
        Bytes(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

impl FromStr for SharePerMinute {
    type Err = UnitError;

    /// Reads `0.2%/min`: percent per minute, at most 100.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let parts = split_unit(text, "0.2%/min")?;
        match parts
            .unit
            .split_once('/')
            .map(|(share, time)| (share.trim(), time.trim()))
        {
            Some(("%", "min")) => {}
            _ if matches!(parts.unit, "" | "%") => {
                return Err(UnitError::MissingUnit {
                    text: text.to_owned(),
                    known: "%/min, as in 0.2%/min",
                });
            }
            _ => return Err(UnitError::unknown_unit(text, parts.unit, "%/min")),
        }
        parts
            .scaled(10_000)
            .and_then(|millionths| u32::try_from(millionths).ok())
            .filter(|millionths| *millionths <= 1_000_000)
            .map(Self)
            .ok_or_else(|| UnitError::too_large(text, "100%/min"))
    }
}

impl fmt::Display for SharePerMinute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}%/min", f64::from(self.0) / 10_000.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_per_minute_is_parsed() {
        for (text, millionths) in [
            ("0.2%/min", 2000),
            ("0.05 % / min", 500),
            ("100%/min", 1_000_000),
            ("0%/min", 0),
        ] {
            assert_eq!(text.parse(), Ok(SharePerMinute(millionths)), "{text}");
        }
        assert_eq!(SharePerMinute(2000).to_string(), "0.2%/min");
        assert_eq!(SharePerMinute(2000).of(Bytes(1_000_000)), Bytes(2000));
    }

    #[test]
    fn missing_or_wrong_unit_is_refused() {
        for (text, hint) in [
            ("0.2%", "\"0.2%\" has no unit: use one of %/min, as in 0.2%/min"),
            ("0.2", "has no unit: use one of %/min"),
            ("0.2%/h", "is not a unit: use one of %/min"),
            ("101%/min", "the maximum is 100%/min"),
            ("", "write it like 0.2%/min"),
        ] {
            let error = text.parse::<SharePerMinute>().map_err(|error| error.to_string());
            assert!(
                error.as_ref().is_err_and(|error| error.contains(hint)),
                "{error:?}"
            );
        }
    }
}
