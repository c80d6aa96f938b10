//! Values of files: how the kernel reads and writes them.
//!
//! Numbers are read as by `kstrtoul()` and its kin: a base by prefix, an optional plus, one line end at most and
//! no other blank. They say EINVAL for what is no number and ERANGE for what does not fit, in this order of
//! precedence: digits that overflow are ERANGE whatever follows them.

use std::fmt;

use rustix::io::Errno;

use crate::table::Kind;

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `%lu`, `%u`
    Unsigned(u64),
    /// `%d`
    Signed(i64),
    /// `Y` or `N`
    Bool(bool),
    /// One of a set of words.
    Word(&'static str),
    /// Anything, kept as it was written.
    Text(String),
    /// Rows of numbers, a line each.
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
            Self::Rows(rows) => f.write_str(&lines(rows)),
        }
    }
}

impl Value {
    /// What `text` means for a file of this `kind`.
    pub fn parse(kind: &Kind, text: &[u8]) -> Result<Self, Errno> {
        let text = until_nul(text);
        match *kind {
            Kind::Unsigned { least, most, lax, .. } => {
                let number = unsigned(text, most).map_err(|errno| if lax { errno } else { Errno::INVAL })?;
                if number < least {
                    return Err(Errno::INVAL);
                }
                Ok(Self::Unsigned(number))
            }
            Kind::Int { lax, .. } => int(text)
                .map(Self::Signed)
                .map_err(|errno| if lax { errno } else { Errno::INVAL }),
            Kind::Bool => boolean(text).map(Self::Bool),
            Kind::Word { words, .. } => word(text, words).map(Self::Word),
            Kind::Text => Ok(Self::Text(String::from_utf8_lossy(text).into_owned())),
            Kind::Rows { widths, most, .. } => rows(text, widths, most).map(Self::Rows),
        }
    }
}

/// Numbers as `%lu` prints them, a row a line.
fn lines(rows: &[Vec<u64>]) -> String {
    let line = |row: &Vec<u64>| row.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Rows of as many numbers as one of `widths` says, a line each; or else of the first width, however they are broken
/// into lines.
fn rows(text: &[u8], widths: &[usize], most: usize) -> Result<Vec<Vec<u64>>, Errno> {
    let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
    let row = |line: &str| -> Result<Vec<u64>, Errno> {
        let numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        numbers.collect::<Result<_, _>>().map_err(|_| Errno::INVAL)
    };
    let by_line: Vec<Vec<u64>> = text.lines().map(row).collect::<Result<_, _>>()?;
    let by_line: Vec<Vec<u64>> = by_line.into_iter().filter(|row| !row.is_empty()).collect();
    let fits = by_line.iter().all(|row| widths.contains(&row.len()));
    let (first, numbers) = (widths.first().copied().unwrap_or(1), by_line.concat());
    let rows: Vec<Vec<u64>> = if fits {
        by_line
    } else if numbers.len().is_multiple_of(first) {
        numbers.chunks(first).map(<[u64]>::to_vec).collect()
    } else {
        return Err(Errno::INVAL);
    };
    if rows.len() > most {
        return Err(Errno::INVAL);
    }
    Ok(rows)
}

pub fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn without_line_end(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

/// An unsigned number of at most `most`.
pub fn unsigned(text: &[u8], most: u64) -> Result<u64, Errno> {
    let number = magnitude(text.strip_prefix(b"+").unwrap_or(text))?;
    if number > most {
        Err(Errno::RANGE)
    } else {
        Ok(number)
    }
}

/// A signed number of 32 bits.
pub fn int(text: &[u8]) -> Result<i64, Errno> {
    let number = match text.strip_prefix(b"-") {
        Some(digits) => -i128::from(magnitude(digits)?),
        None => i128::from(magnitude(text.strip_prefix(b"+").unwrap_or(text))?),
    };
    i32::try_from(number).map(i64::from).map_err(|_| Errno::RANGE)
}

fn magnitude(text: &[u8]) -> Result<u64, Errno> {
    let (radix, text) = match text {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (16, &text[2..]),
        [b'0', ..] => (8, text),
        _ => (10, text),
    };
    let (mut number, mut rest) = (0_u64, text);
    while let [first, tail @ ..] = rest
        && let Some(digit) = char::from(*first).to_digit(radix)
    {
        let more = number
            .checked_mul(u64::from(radix))
            .and_then(|n| n.checked_add(u64::from(digit)));
        number = more.ok_or(Errno::RANGE)?;
        rest = tail;
    }
    let read_any = rest.len() < text.len();
    if read_any && without_line_end(rest).is_empty() {
        Ok(number)
    } else {
        Err(Errno::INVAL)
    }
}

/// Yes or no by the first letter, or two: `on` and `off` begin alike.
pub fn boolean(text: &[u8]) -> Result<bool, Errno> {
    match text {
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] => Ok(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] => Ok(false),
        [b'o' | b'O', b'n' | b'N', ..] => Ok(true),
        [b'o' | b'O', b'f' | b'F', ..] => Ok(false),
        _ => Err(Errno::INVAL),
    }
}

/// The one of `words` that was written.
pub fn word(text: &[u8], words: &[&'static str]) -> Result<&'static str, Errno> {
    let text = without_line_end(until_nul(text));
    let known = words.iter().find(|word| word.as_bytes() == text);
    known.copied().ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_does() {
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
                unsigned(until_nul(text.as_bytes()), u64::MAX),
                expected,
                "{text:?}"
            );
        }
        assert_eq!(unsigned(b"4294967296", u64::from(u32::MAX)), Err(Errno::RANGE));
        assert_eq!(int(b"-1\n"), Ok(-1));
        assert_eq!(int(b"-2147483648"), Ok(-2_147_483_648));
        assert_eq!(int(b"2147483648"), Err(Errno::RANGE));
        assert_eq!(int(b"--1"), Err(Errno::INVAL));
    }

    #[test]
    fn rows_are_lines_or_run_on() {
        let schemes = |text: &str| rows(text.as_bytes(), &[4, 2], 3);
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
        assert_eq!(lines(&[vec![1, 2], vec![3]]), "1 2\n3");
    }

    #[test]
    fn yes_no_and_words() {
        for yes in ["Y", "y", "1", "true", "on", "ON\n", "yes please"] {
            assert_eq!(boolean(yes.as_bytes()), Ok(true), "{yes}");
        }
        for no in ["N", "n", "0", "false", "off", "of"] {
            assert_eq!(boolean(no.as_bytes()), Ok(false), "{no}");
        }
        for neither in ["", "o", "maybe", " y"] {
            assert_eq!(boolean(neither.as_bytes()), Err(Errno::INVAL), "{neither:?}");
        }
        assert_eq!(word(b"cold\n", &["stat", "cold"]), Ok("cold"));
        for wrong in [&b"Cold"[..], b"cold\n\n", b"cold ", b"col", b""] {
            assert_eq!(word(wrong, &["stat", "cold"]), Err(Errno::INVAL));
        }
    }
}
