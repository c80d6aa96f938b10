//! Values of files, parsed and printed as in the kernel.
//!
//! Numbers are parsed as by `kstrtoul()`: base by prefix, an optional plus sign, at most one trailing newline
//! and no other white space. EINVAL: not a number. ERANGE: does not fit the type. Digits that overflow are
//! ERANGE, whatever follows them.

use std::fmt;

use rustix::io::Errno;

use crate::table::Kind;

/// The value of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `%lu`, `%u`
    Unsigned(u64),
    /// `%d`
    Signed(i64),
    /// `Y` or `N`
    Bool(bool),
    /// One of a set of keywords.
    Word(&'static str),
    /// Any text, kept as written.
    Text(String),
    /// Rows of numbers, one row per line.
    Rows(Vec<Vec<u64>>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Bool(yes) => f.write_str(if *yes { "Y" } else { "N" }),
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => f.write_str(text),
            Self::Rows(rows) => f.write_str(&format_rows(rows)),
        }
    }
}

impl Value {
    /// Parses `text` for a file of this `kind`.
    pub fn parse(kind: &Kind, text: &[u8]) -> Result<Self, Errno> {
        let text = until_nul(text);
        match *kind {
            Kind::Unsigned { min, max, erange, .. } => {
                let number =
                    parse_unsigned(text, max).map_err(|errno| if erange { errno } else { Errno::INVAL })?;
                if number < min {
                    return Err(Errno::INVAL);
                }
                Ok(Self::Unsigned(number))
            }
            Kind::Int { erange, .. } => parse_int(text)
                .map(Self::Signed)
                .map_err(|errno| if erange { errno } else { Errno::INVAL }),
            Kind::Bool => parse_bool(text).map(Self::Bool),
            Kind::Word { words, .. } => parse_word(text, words).map(Self::Word),
            Kind::Text => Ok(Self::Text(String::from_utf8_lossy(text).into_owned())),
            Kind::Rows { widths, max, .. } => parse_rows(text, widths, max).map(Self::Rows),
        }
    }
}

/// Prints numbers as `%lu` does, one row per line.
fn format_rows(rows: &[Vec<u64>]) -> String {
    let line = |row: &Vec<u64>| row.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Parses rows of numbers. Each line is one row if the length of every line is in `widths`. Otherwise rows
/// have the first width and may span lines.
fn parse_rows(text: &[u8], widths: &[usize], max: usize) -> Result<Vec<Vec<u64>>, Errno> {
    let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
    let row = |line: &str| -> Result<Vec<u64>, Errno> {
        let numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        numbers.collect::<Result<_, _>>().map_err(|_| Errno::INVAL)
    };
    let by_line: Vec<Vec<u64>> = text.lines().map(row).collect::<Result<_, _>>()?;
    let by_line: Vec<Vec<u64>> = by_line.into_iter().filter(|row| !row.is_empty()).collect();
    let lines_are_rows = by_line.iter().all(|row| widths.contains(&row.len()));
    let (width, numbers) = (widths.first().copied().unwrap_or(1), by_line.concat());
    let rows: Vec<Vec<u64>> = if lines_are_rows {
        by_line
    } else if numbers.len().is_multiple_of(width) {
        numbers.chunks(width).map(<[u64]>::to_vec).collect()
    } else {
        return Err(Errno::INVAL);
    };
    if rows.len() > max {
        return Err(Errno::INVAL);
    }
    Ok(rows)
}

pub fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn strip_newline(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

/// Parses an unsigned number of at most `max`.
pub fn parse_unsigned(text: &[u8], max: u64) -> Result<u64, Errno> {
    let number = parse_digits(text.strip_prefix(b"+").unwrap_or(text))?;
    if number > max {
        Err(Errno::RANGE)
    } else {
        Ok(number)
    }
}

/// Parses a signed 32-bit number.
pub fn parse_int(text: &[u8]) -> Result<i64, Errno> {
    let number = match text.strip_prefix(b"-") {
        Some(digits) => -i128::from(parse_digits(digits)?),
        None => i128::from(parse_digits(text.strip_prefix(b"+").unwrap_or(text))?),
    };
    i32::try_from(number).map(i64::from).map_err(|_| Errno::RANGE)
}

fn parse_digits(text: &[u8]) -> Result<u64, Errno> {
    let (radix, text) = match text {
        [b'0', b'x' | b'X', digits @ ..] if digits.first().is_some_and(u8::is_ascii_hexdigit) => (16, digits),
        [b'0', ..] => (8, text),
        _ => (10, text),
    };
    let (mut number, mut rest) = (0_u64, text);
    while let [first, tail @ ..] = rest
        && let Some(digit) = char::from(*first).to_digit(radix)
    {
        let next = number
            .checked_mul(u64::from(radix))
            .and_then(|n| n.checked_add(u64::from(digit)));
        number = next.ok_or(Errno::RANGE)?;
        rest = tail;
    }
    let has_digits = rest.len() < text.len();
    if has_digits && strip_newline(rest).is_empty() {
        Ok(number)
    } else {
        Err(Errno::INVAL)
    }
}

/// Parses a boolean as `kstrtobool()` does: by the first letter, or by two letters for `on` and `off`.
pub fn parse_bool(text: &[u8]) -> Result<bool, Errno> {
    match text {
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] => Ok(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] => Ok(false),
        [b'o' | b'O', b'n' | b'N', ..] => Ok(true),
        [b'o' | b'O', b'f' | b'F', ..] => Ok(false),
        _ => Err(Errno::INVAL),
    }
}

/// Parses one of `words`.
pub fn parse_word(text: &[u8], words: &[&'static str]) -> Result<&'static str, Errno> {
    let text = strip_newline(until_nul(text));
    let known = words.iter().find(|word| word.as_bytes() == text);
    known.copied().ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_parse_as_in_the_kernel() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("10\n", Ok(10)),
            ("+7", Ok(7)),
            ("0x1f", Ok(31)),
            ("0X1F\n", Ok(31)),
            ("010", Ok(8)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", Err(Errno::RANGE)),
            ("99999999999999999999z", Err(Errno::RANGE)),
            ("", Err(Errno::INVAL)),
            ("\n", Err(Errno::INVAL)),
            ("1\n\n", Err(Errno::INVAL)),
            (" 1", Err(Errno::INVAL)),
            ("1 ", Err(Errno::INVAL)),
            ("-1", Err(Errno::INVAL)),
            ("++1", Err(Errno::INVAL)),
            ("0x", Err(Errno::INVAL)),
            ("08", Err(Errno::INVAL)),
            ("1k", Err(Errno::INVAL)),
            ("5\0junk", Ok(5)),
        ] {
            assert_eq!(
                parse_unsigned(until_nul(text.as_bytes()), u64::MAX),
                expected,
                "{text:?}"
            );
        }
        assert_eq!(
            parse_unsigned(b"4294967296", u64::from(u32::MAX)),
            Err(Errno::RANGE)
        );
        assert_eq!(parse_int(b"-1\n"), Ok(-1));
        assert_eq!(parse_int(b"-2147483648"), Ok(-2_147_483_648));
        assert_eq!(parse_int(b"2147483648"), Err(Errno::RANGE));
        assert_eq!(parse_int(b"--1"), Err(Errno::INVAL));
    }

    #[test]
    fn rows_may_span_lines() {
        let schemes = |text: &str| parse_rows(text.as_bytes(), &[4, 2], 3);
        assert_eq!(schemes(""), Ok(vec![]));
        assert_eq!(schemes(" \n\n"), Ok(vec![]));
        assert_eq!(schemes("1 2 3 4\n5 6\n"), Ok(vec![vec![1, 2, 3, 4], vec![5, 6]]));
        assert_eq!(schemes("1\n2 3 4"), Ok(vec![vec![1, 2, 3, 4]]));
        for wrong in [
            "1",
            "1 2 3",
            "1 2 3 4 5",
            "1 -2",
            "1 0x2",
            "1 18446744073709551616",
            "1 2 x",
        ] {
            assert_eq!(schemes(wrong), Err(Errno::INVAL), "{wrong}");
        }
        assert_eq!(schemes("1 2\n1 2\n1 2\n1 2"), Err(Errno::INVAL), "too many");
        assert_eq!(format_rows(&[vec![1, 2], vec![3]]), "1 2\n3");
    }

    #[test]
    fn booleans_and_words_parse_as_in_the_kernel() {
        for yes in ["Y", "y", "1", "true", "on", "ON\n", "yes please"] {
            assert_eq!(parse_bool(yes.as_bytes()), Ok(true), "{yes}");
        }
        for no in ["N", "n", "0", "false", "off", "of"] {
            assert_eq!(parse_bool(no.as_bytes()), Ok(false), "{no}");
        }
        for neither in ["", "o", "maybe", " y"] {
            assert_eq!(parse_bool(neither.as_bytes()), Err(Errno::INVAL), "{neither:?}");
        }
        assert_eq!(parse_word(b"cold\n", &["stat", "cold"]), Ok("cold"));
        for wrong in [&b"Cold"[..], b"cold\n\n", b"cold ", b"col", b""] {
            assert_eq!(parse_word(wrong, &["stat", "cold"]), Err(Errno::INVAL));
        }
    }
}
