//! Shares of a whole.

use std::fmt;
use std::str::FromStr;

use crate::number::{UnitError, split_unit};

/// Thousandths: 0 is none, 1000 is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Permille(pub u32);

/// Ten-thousandths (`bp`): the unit of DAMON's goals and of the moving access rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BasisPoints(pub u64);

impl BasisPoints {
    /// The whole.
    pub const WHOLE: Self = Self(10_000);
}

impl FromStr for Permille {
    type Err = UnitError;

    /// Reads percent: `5%`, `0.5 %`, a plain `5`; at most 100 %. `min` is 0 and `max` is 100 %.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.trim() {
            "min" => return Ok(Self(0)),
            "max" => return Ok(Self(1000)),
            _ => {}
        }
        let parts = split_unit(text, "5% or 0.5%")?;
        if !matches!(parts.unit, "" | "%") {
            return Err(UnitError::unknown_unit(text, parts.unit, "%"));
        }
        parts
            .scaled(10)
            .and_then(|permille| u32::try_from(permille).ok())
            .filter(|permille| *permille <= 1000)
            .map(Self)
            .ok_or_else(|| UnitError::too_large(text, "100%"))
    }
}

impl fmt::Display for Permille {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(10) {
            f.pad(&format!("{} %", self.0 / 10))
        } else {
            f.pad(&format!("{}.{} %", self.0 / 10, self.0 % 10))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_parsed_to_permille() {
        for (text, permille) in [
            ("5%", 50),
            ("5", 50),
            ("0.5 %", 5),
            ("100%", 1000),
            ("min", 0),
            ("max", 1000),
        ] {
            assert_eq!(text.parse(), Ok(Permille(permille)), "{text}");
        }
        assert_eq!(Permille(5).to_string(), "0.5 %");
    }

    #[test]
    fn more_than_100_percent_is_refused() {
        assert!(matches!(
            "101%".parse::<Permille>(),
            Err(UnitError::TooLarge { .. })
        ));
        assert!(matches!(
            "5s".parse::<Permille>(),
            Err(UnitError::UnknownUnit { .. })
        ));
    }
}
