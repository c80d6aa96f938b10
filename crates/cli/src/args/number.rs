//! Whole numbers on the command line, with errors that say what to give instead.

/// Parses a whole number.
///
/// # Errors
/// A sentence for the user.
pub fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err("give a whole number like 10".to_owned());
    }
    let number = text
        .parse::<u64>()
        .ok()
        .and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| "the number is too large".to_owned())
}

/// Parses a process ID.
///
/// # Errors
/// A sentence for the user.
pub fn pid(text: &str) -> Result<u32, String> {
    whole(text).map_err(|_| "give a process ID like 4242; `pgrep NAME` prints it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_what_is_expected() {
        assert_eq!(whole::<u32>("10"), Ok(10));
        assert_eq!(pid("4242"), Ok(4242));
        for (text, expected) in [
            ("abc", "whole number"),
            ("", "whole number"),
            ("-1", "whole number"),
            ("+1", "whole number"),
            ("4294967296", "too large"),
            ("99999999999999999999", "too large"),
        ] {
            let error = whole::<u32>(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
            assert!(pid(text).expect_err(text).contains("process ID"), "{text}");
        }
    }
}
