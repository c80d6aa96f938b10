//! Values of parameters, as the files of the kernel module accept them: bare numbers in the module's unit.
//! Numbers with a unit are accepted too.

use std::str::FromStr;

use thermo_units::{Nanos, Permille, UnitError};

/// Why a parameter was not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// No parameter has this name.
    #[error("{name:?} is not a parameter: use one of {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The value is of the wrong kind.
    #[error("{value:?} is not a valid value: give {expected}")]
    Value {
        /// The value.
        value: String,
        /// The expected kind of value.
        expected: &'static str,
    },
    /// The value is not a valid quantity.
    #[error(transparent)]
    Unit(#[from] UnitError),
}

fn is_bare(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// A duration; a bare number is microseconds.
pub(super) fn time(value: &str) -> Result<Nanos, ParameterError> {
    let value = value.trim();
    Ok(if is_bare(value) {
        format!("{value}us").parse()?
    } else {
        value.parse()?
    })
}

/// A share; a bare number is thousandths.
pub(super) fn share(value: &str) -> Result<Permille, ParameterError> {
    let value = value.trim();
    if is_bare(value) {
        number(
            value,
            "a whole number of thousandths, like 500, or a share like 50%",
        )
        .map(Permille)
    } else {
        Ok(value.parse()?)
    }
}

/// A count or an address; `0x` marks hexadecimal.
pub(super) fn number<T: FromStr + TryFrom<u64>>(
    value: &str,
    expected: &'static str,
) -> Result<T, ParameterError> {
    let value = value.trim();
    let number = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16)
            .ok()
            .and_then(|n| T::try_from(n).ok()),
        None => value.parse().ok(),
    };
    number.ok_or_else(|| ParameterError::Value {
        value: value.to_owned(),
        expected,
    })
}

/// Yes or no, in the spellings that the kernel accepts.
pub(super) fn boolean(value: &str) -> Result<bool, ParameterError> {
    match value.trim() {
        "Y" | "y" | "1" | "true" | "on" => Ok(true),
        "N" | "n" | "0" | "false" | "off" => Ok(false),
        _ => Err(ParameterError::Value {
            value: value.to_owned(),
            expected: "Y or N",
        }),
    }
}
