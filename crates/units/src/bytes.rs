//! Sizes.

use std::fmt;
use std::str::FromStr;

use crate::arithmetic::arithmetic;
use crate::number::{UnitError, split_unit, three_digits};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

const UNITS_HELP: &str = "B, K, M, G, T, P, E (1024 each; KB and KiB mean the same)";

impl Bytes {
    /// `n` times 1024 bytes, at most [`Bytes::MAX`].
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 10))
    }

    /// `n` times 1,048,576 bytes, at most [`Bytes::MAX`].
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 20))
    }

    /// `n` times 1,073,741,824 bytes, at most [`Bytes::MAX`].
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 30))
    }

    /// The text of a difference: `-4.00 MiB`.
    #[must_use]
    pub fn signed(difference: i64) -> String {
        let sign = if difference < 0 { "-" } else { "" };
        format!("{sign}{}", Self(difference.unsigned_abs()))
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    /// Reads `4096`, `64M`, `1.5 GiB`, `128 B`; `min` is 0 and `max` is [`Bytes::MAX`].
    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.trim() {
            "min" => return Ok(Self::ZERO),
            "max" => return Ok(Self::MAX),
            _ => {}
        }
        let parts = split_unit(text, "4096, 64M or 1.5G")?;
        let lower = parts.unit.to_ascii_lowercase();
        let scale = match lower.trim_end_matches("ib").trim_end_matches('b') {
            "" => 1,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            "t" => 1 << 40,
            "p" => 1 << 50,
            "e" => 1 << 60,
            _ => return Err(UnitError::unknown_unit(text, parts.unit, UNITS_HELP)),
        };
        let too_large = || UnitError::too_large(text, "16 EiB less one byte");
        parts.scaled(scale).map(Self).ok_or_else(too_large)
    }
}

impl fmt::Display for Bytes {
    /// Three significant digits and a binary unit: `977 MiB`, `1.46 GiB`, `max` for [`Bytes::MAX`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if *self == Self::MAX {
            return f.pad("max");
        }
        #[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        if unit == 0 {
            return f.pad(&format!("{} B", self.0));
        }
        f.pad(&three_digits(value, UNITS[unit]))
    }
}

arithmetic!(Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_parsed_from_every_notation() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4K", 4096),
            ("64M", 64 << 20),
            ("64 MB", 64 << 20),
            ("4.000 KiB", 4096),
            ("1.5G", 3 << 29),
            ("500.000 MiB", 500 << 20),
            ("1,024 B", 1024),
            ("0", 0),
            ("min", 0),
            ("max", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn invalid_size_error_names_valid_units() {
        for text in ["", "M", "-1", "1..2", "1.2.3", "x64"] {
            assert!(
                matches!(text.parse::<Bytes>(), Err(UnitError::NotANumber { .. })),
                "{text}"
            );
        }
        let error = "5q".parse::<Bytes>().expect_err("q is no unit");
        assert!(error.to_string().contains("K, M, G"), "{error}");
        assert!(matches!("17E".parse::<Bytes>(), Err(UnitError::TooLarge { .. })));
        assert!(matches!(
            "99999999999999999999999999999999999".parse::<Bytes>(),
            Err(UnitError::TooLarge { .. })
        ));
    }

    #[test]
    fn size_is_printed_with_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (4096, "4.00 KiB"),
            (977 << 20, "977 MiB"),
            (1023 << 20, "1.00 GiB"),
            (3 << 29, "1.50 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
