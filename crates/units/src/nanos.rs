//! Durations and points in time.

use std::fmt;
use std::ops::Mul;
use std::str::FromStr;

use crate::arithmetic::arithmetic;
use crate::number::{UnitError, split_unit, three_digits};

/// Nanoseconds: a duration, or a point in time on the caller's clock (`CLOCK_MONOTONIC` in the product).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

const UNITS_HELP: &str = "ns, us, ms, s, m, h, d";

impl Nanos {
    /// `n` microseconds.
    #[must_use]
    pub const fn micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// `n` milliseconds.
    #[must_use]
    pub const fn millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// `n` seconds.
    #[must_use]
    pub const fn secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }

    /// In whole microseconds, the unit of DAMON's files.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// In seconds, with a fraction.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "only for printing and ratios")]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The sum, or [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl FromStr for Nanos {
    type Err = UnitError;

    /// Reads `5ms`, `12s`, `1.5 h`; `0`, `min` and `max`. Any other number without a unit is an error,
    /// because tools disagree about its unit.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.trim() {
            "min" => return Ok(Self::ZERO),
            "max" => return Ok(Self::MAX),
            _ => {}
        }
        let parts = split_unit(text, "5ms, 12s or 2m")?;
        let scale = match parts.unit {
            "ns" => 1,
            "us" | "µs" | "usec" => 1_000,
            "ms" | "msec" => 1_000_000,
            "s" | "sec" => 1_000_000_000,
            "m" | "min" => 60 * 1_000_000_000,
            "h" => 3600 * 1_000_000_000,
            "d" => 86_400 * 1_000_000_000,
            "" if parts.is_zero() => return Ok(Self::ZERO),
            "" => {
                return Err(UnitError::MissingUnit {
                    text: text.to_owned(),
                    known: UNITS_HELP,
                });
            }
            unit => return Err(UnitError::unknown_unit(text, unit, UNITS_HELP)),
        };
        let too_large = || UnitError::too_large(text, "584 years");
        parts.scaled(scale).map(Self).ok_or_else(too_large)
    }
}

impl fmt::Display for Nanos {
    /// Three significant digits in a suitable unit: `5.00 ms`, `12.0 s`, `2 m 30 s`, `max`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
        let per = |unit: f64| self.0 as f64 / unit;
        let text = match self.0 {
            u64::MAX => "max".to_owned(),
            0 => "0 s".to_owned(),
            ns if ns < 1_000 => format!("{ns} ns"),
            ns if ns < 1_000_000 => three_digits(per(1e3), "us"),
            ns if ns < 1_000_000_000 => three_digits(per(1e6), "ms"),
            ns if ns < 120_000_000_000 => three_digits(per(1e9), "s"),
            ns => {
                let secs = ns / 1_000_000_000;
                let pairs = [
                    (secs / 86_400, "d"),
                    (secs / 3600 % 24, "h"),
                    (secs / 60 % 60, "m"),
                    (secs % 60, "s"),
                ];
                let parts: Vec<String> = pairs
                    .iter()
                    .filter(|(n, _)| *n > 0)
                    .take(2)
                    .map(|(n, unit)| format!("{n} {unit}"))
                    .collect();
                parts.join(" ")
            }
        };
        f.pad(&text)
    }
}

arithmetic!(Nanos);

impl Mul<u64> for Nanos {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_parsed_from_every_notation() {
        for (text, ns) in [
            ("5ms", 5_000_000),
            ("100 us", 100_000),
            ("12s", 12_000_000_000),
            ("2m", 120_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("0 ns", 0),
            ("0", 0),
            ("max", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
    }

    #[test]
    fn duration_without_unit_is_refused_unless_zero() {
        assert!(matches!("5".parse::<Nanos>(), Err(UnitError::MissingUnit { .. })));
        assert!(matches!(
            "5 weeks".parse::<Nanos>(),
            Err(UnitError::UnknownUnit { .. })
        ));
        assert!(matches!(
            "999999d".parse::<Nanos>(),
            Err(UnitError::TooLarge { .. })
        ));
    }

    #[test]
    fn duration_is_printed_in_suitable_unit() {
        for (ns, text) in [
            (0, "0 s"),
            (5_000_000, "5.00 ms"),
            (100_000_000, "100 ms"),
            (12_000_000_000, "12.0 s"),
            (150_000_000_000, "2 m 30 s"),
            (7_200_000_000_000, "2 h"),
        ] {
            assert_eq!(Nanos(ns).to_string(), text);
        }
    }
}
