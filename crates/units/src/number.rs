//! The part all units share: a number, then a suffix.

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Nothing, or nothing that begins with a digit.
    #[error("{text:?} is not a number: write it like {example}")]
    NotANumber {
        /// What was given.
        text: String,
        /// A text that would be right.
        example: &'static str,
    },
    /// A number with a unit that does not exist.
    #[error("{unit:?} in {text:?} is not a unit: use one of {known}")]
    UnknownUnit {
        /// What was given.
        text: String,
        /// Its unit.
        unit: String,
        /// The units there are.
        known: &'static str,
    },
    /// A bare number where the unit cannot be guessed.
    #[error("{text:?} has no unit: use one of {known}")]
    MissingUnit {
        /// What was given.
        text: String,
        /// The units there are.
        known: &'static str,
    },
    /// A number that does not fit, or lies outside of what makes sense.
    #[error("{text:?} is out of range: the most is {most}")]
    TooLarge {
        /// What was given.
        text: String,
        /// The largest value that is accepted.
        most: &'static str,
    },
}

/// A text taken apart: whole part, fraction as digits, suffix.
pub(super) struct Parts<'a> {
    whole: u128,
    fraction: &'a str,
    pub(super) unit: &'a str,
}

impl Parts<'_> {
    /// This number of units of `scale` smallest units each, rounded down; `None` when it does not fit 64 bits.
    pub(super) fn scaled(&self, scale: u64) -> Option<u64> {
        let scale = u128::from(scale);
        let mut total = self.whole.checked_mul(scale)?;
        if !self.fraction.is_empty() {
            // More than 18 digits say nothing that 64 bits could hold.
            let digits = &self.fraction[..self.fraction.len().min(18)];
            let fraction: u128 = digits.parse().ok()?;
            total += fraction * scale / 10u128.pow(u32::try_from(digits.len()).ok()?);
        }
        u64::try_from(total).ok()
    }

    /// True when the number is 0, which needs no unit.
    pub(super) fn is_zero(&self) -> bool {
        self.whole == 0 && self.fraction.bytes().all(|digit| digit == b'0')
    }
}

/// Takes `text` apart. Commas between digits are thousands separators, as damo writes them.
pub(super) fn take_apart<'a>(text: &'a str, example: &'static str) -> Result<Parts<'a>, UnitError> {
    let not_a_number = || UnitError::NotANumber {
        text: text.to_owned(),
        example,
    };
    let trimmed = text.trim();
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if !whole.starts_with(|c: char| c.is_ascii_digit()) || fraction.contains(['.', ',']) {
        return Err(not_a_number());
    }
    let digits: String = whole.chars().filter(|c| *c != ',').collect();
    // 30 digits are far past 64 bits and still fit the 128 that are computed with.
    let whole = if digits.len() > 30 {
        u128::MAX >> 1
    } else {
        digits.parse().map_err(|_| not_a_number())?
    };
    Ok(Parts {
        whole,
        fraction,
        unit: unit.trim(),
    })
}
