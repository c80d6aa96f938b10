//! Parsing shared by all units: a number, then a unit.

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text is empty or does not begin with a digit.
    #[error("{text:?} is not a number: write it like {example}")]
    NotANumber {
        /// The input.
        text: String,
        /// A valid example.
        example: &'static str,
    },
    /// The unit is unknown.
    #[error("{unit:?} in {text:?} is not a unit: use one of {known}")]
    UnknownUnit {
        /// The input.
        text: String,
        /// The unit in it.
        unit: String,
        /// The valid units.
        known: &'static str,
    },
    /// The number has no unit, and no default is safe.
    #[error("{text:?} has no unit: use one of {known}")]
    MissingUnit {
        /// The input.
        text: String,
        /// The valid units.
        known: &'static str,
    },
    /// The number does not fit, or is outside the valid range.
    #[error("{text:?} is out of range: the maximum is {max}")]
    TooLarge {
        /// The input.
        text: String,
        /// The maximum.
        max: &'static str,
    },
}

impl UnitError {
    pub(super) fn unknown_unit(text: &str, unit: &str, known: &'static str) -> Self {
        let (text, unit) = (text.to_owned(), unit.to_owned());
        Self::UnknownUnit { text, unit, known }
    }

    pub(super) fn too_large(text: &str, max: &'static str) -> Self {
        let text = text.to_owned();
        Self::TooLarge { text, max }
    }
}

/// `value` with three significant digits, and its unit.
pub(super) fn three_digits(value: f64, unit: &str) -> String {
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// A text split into whole part, fraction (digits) and unit.
pub(super) struct Parts<'a> {
    whole: u128,
    fraction: &'a str,
    pub(super) unit: &'a str,
}

impl Parts<'_> {
    /// The number in the smallest unit, of which `scale` make one, rounded down; `None` if it does not fit in
    /// 64 bits.
    pub(super) fn scaled(&self, scale: u64) -> Option<u64> {
        let scale = u128::from(scale);
        let mut total = self.whole.checked_mul(scale)?;
        if !self.fraction.is_empty() {
            // Further digits are below the resolution of 64 bits.
            let digits = &self.fraction[..self.fraction.len().min(18)];
            let fraction: u128 = digits.parse().ok()?;
            total += fraction * scale / 10u128.pow(u32::try_from(digits.len()).ok()?);
        }
        u64::try_from(total).ok()
    }

    /// True if the number is 0, which needs no unit.
    pub(super) fn is_zero(&self) -> bool {
        self.whole == 0 && self.fraction.bytes().all(|digit| digit == b'0')
    }
}

/// Splits `text`. Commas between digits are thousands separators, as damo writes them.
pub(super) fn split_unit<'a>(text: &'a str, example: &'static str) -> Result<Parts<'a>, UnitError> {
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
    // 30 digits exceed 64 bits by far and still fit in the 128 bits used here.
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
