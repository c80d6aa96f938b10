//! Numbers in damo's JSON: as numbers or as text, with thousands separators or units ("700 ms", "1.5 GiB", "1
//! m 30 s", "max").

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// Names of units with their factors.
type Units = &'static [(&'static str, f64)];

const NO_UNITS: Units = &[];
/// Factors to nanoseconds.
const TIMES: Units = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
    ("d", 86400e9),
];
/// Factors to bytes. damo's K is 1024.
const SIZES: Units = &[
    ("B", 1.0),
    ("K", 1024.0),
    ("KB", 1024.0),
    ("KiB", 1024.0),
    ("M", 1048576.0),
    ("MB", 1048576.0),
    ("MiB", 1048576.0),
    ("G", 1073741824.0),
    ("GB", 1073741824.0),
    ("GiB", 1073741824.0),
    ("T", 1099511627776.0),
    ("TB", 1099511627776.0),
    ("TiB", 1099511627776.0),
    ("P", 1125899906842624.0),
    ("PiB", 1125899906842624.0),
    ("E", 1152921504606846976.0),
    ("EiB", 1152921504606846976.0),
];
/// Factor to ten-thousandths.
const PERCENT: Units = &[("%", 100.0)];

/// A quantity that may be missing: left out, null, or negative, which is damo's marker of a missing number.
pub(super) fn optional<'de, D: Deserializer<'de>, T: Quantity>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    deserializer
        .deserialize_any(OptionalParser(T::PARSER))
        .map(|number| number.map(T::new))
}

/// A type that [`quantity!`] declares.
pub(super) trait Quantity {
    const PARSER: QuantityParser;

    fn new(number: u64) -> Self;
}

/// Parses one quantity to an integer.
pub(super) struct QuantityParser {
    /// Name of the quantity, for errors.
    name: &'static str,
    /// Factor of a number without a unit.
    default_factor: f64,
    units: Units,
}

macro_rules! quantity {
    ($(#[$doc:meta])* $type:ident, $name:literal, $default_factor:literal, $units:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $type(pub u64);

        impl Quantity for $type {
            const PARSER: QuantityParser = QuantityParser {
                name: $name,
                default_factor: $default_factor,
                units: $units,
            };

            fn new(number: u64) -> Self {
                Self(number)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Self::PARSER).map(Self)
            }
        }
    };
}

quantity!(/** A number without a unit. */ Count, "a number", 1.0, NO_UNITS);
quantity!(/** A number of bytes, or an address. */ ByteCount, "a number of bytes", 1.0, SIZES);
quantity!(/** A time in ns. */ Nanoseconds, "a time", 1.0, TIMES);
quantity!(/** A time in ns; in the file, a number without a unit is in us. */ MicrosAsNanos, "a time", 1000.0, TIMES);
quantity!(/** A share in ten-thousandths; in the file in percent. */ Percent, "a percentage", 100.0, PERCENT);

impl QuantityParser {
    fn parse(&self, text: &str) -> Option<u64> {
        if text == "max" {
            return Some(u64::MAX);
        }
        let without_commas: String = text.chars().filter(|c| *c != ',').collect();
        let mut rest = without_commas.trim();
        if let Ok(number) = rest.parse() {
            return Some(self.integer(number));
        }
        if let Ok(number) = rest.parse::<f64>() {
            return to_u64(number * self.default_factor);
        }
        let mut sum = 0.0;
        while !rest.is_empty() {
            let number = split_off_until(&mut rest, |c| !c.is_ascii_digit() && c != '.' && c != '-');
            let unit = split_off_until(&mut rest, |c| c.is_whitespace() || c.is_ascii_digit());
            let factor = self.units.iter().find(|(name, _)| *name == unit)?.1;
            sum += number.parse::<f64>().ok()? * factor;
        }
        to_u64(sum)
    }

    /// Integers are not converted to a float, which cannot hold all addresses.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the factor is 1, 100 or 1000"
    )]
    const fn integer(&self, number: u64) -> u64 {
        number.saturating_mul(self.default_factor as u64)
    }
}

/// Rounds down. `None`: negative or not finite.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates"
)]
fn to_u64(number: f64) -> Option<u64> {
    (number.is_finite() && number >= 0.0).then_some(number as u64)
}

/// Removes and returns the front of `rest` up to a character that matches `stop`, and removes white space
/// behind it.
fn split_off_until<'a>(rest: &mut &'a str, stop: impl Fn(char) -> bool) -> &'a str {
    let (front, back) = rest.split_at(rest.find(stop).unwrap_or(rest.len()));
    *rest = back.trim_start();
    front
}

impl Visitor<'_> for QuantityParser {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(self.integer(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        let positive =
            u64::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))?;
        Ok(self.integer(positive))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
        to_u64(number * self.default_factor)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        self.parse(text)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

/// Parses a quantity that may be null or negative.
struct OptionalParser(QuantityParser);

impl Visitor<'_> for OptionalParser {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} or null", self.0.name)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Option<u64>, E> {
        self.0.visit_u64(number).map(Some)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Option<u64>, E> {
        if number < 0 {
            Ok(None)
        } else {
            self.0.visit_i64(number).map(Some)
        }
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Option<u64>, E> {
        if number < 0.0 {
            Ok(None)
        } else {
            self.0.visit_f64(number).map(Some)
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<u64>, E> {
        let is_missing = text.trim().starts_with('-') || text == "null" || text == "None";
        if is_missing {
            Ok(None)
        } else {
            self.0.visit_str(text).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn read<T: for<'a> Deserialize<'a>>(json: &str) -> T {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn quantity_reads_numbers_commas_and_units() {
        assert_eq!(
            read::<ByteCount>("\"139,637,976,727,552\"").0,
            139_637_976_727_552
        );
        assert_eq!(read::<ByteCount>("18446744073709551615").0, u64::MAX);
        assert_eq!(read::<ByteCount>("\"1.500 GiB\"").0, 3 << 29);
        assert_eq!(read::<MicrosAsNanos>("\"5000\"").0, 5_000_000);
        assert_eq!(read::<MicrosAsNanos>("\"700 ms\"").0, 700_000_000);
        assert_eq!(read::<Nanoseconds>("\"1 m 30 s\"").0, 90_000_000_000);
        assert_eq!(read::<Percent>("15").0, 1500);
        assert_eq!(read::<Percent>("\"7.5 %\"").0, 750);
        assert_eq!(read::<Count>("\"max\"").0, u64::MAX);
    }

    #[test]
    fn missing_quantity_is_not_zero() {
        let read = |json: &str| {
            let mut parser = serde_json::Deserializer::from_str(json);
            optional::<_, Count>(&mut parser).map(|count| count.map(|count| count.0))
        };
        for missing in ["null", "-1", "-1.0", "\"-1\"", "\"null\""] {
            assert_eq!(read(missing).unwrap(), None, "{missing}");
        }
        assert_eq!(read("0").unwrap(), Some(0));
        assert_eq!(read("\"7\"").unwrap(), Some(7));
        assert!(read("\"many\"").is_err());
        for json in ["-1", "-0.5", "null", "\"-1\""] {
            assert!(serde_json::from_str::<Count>(json).is_err(), "{json}: required");
        }
    }

    #[test]
    fn quantity_error_quotes_invalid_text() {
        let error = serde_json::from_str::<Count>("\"many\"")
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("\"many\", expected a number"), "{error}");
    }
}
