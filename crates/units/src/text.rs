//! A mistake in a text a person wrote, with its place: one shape for scheme files, workload files and
//! experiment files.

use std::fmt;
use std::ops::Range;

/// What is wrong at a place of a text. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The line.
    pub line: usize,
    /// The column in it.
    pub column: usize,
    /// One sentence: what is wrong and what would be right.
    pub message: String,
}

impl ParseError {
    /// A fault at a known line and column.
    pub fn new(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            column,
            message: message.into(),
        }
    }

    /// A fault where `part` stands; `part` must be a slice of `text`. The begin of `text` if it is not.
    pub fn at(text: &str, part: &str, message: impl Into<String>) -> Self {
        let offset = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
        Self::at_offset(text, if offset <= text.len() { offset } else { 0 }, message)
    }

    /// A fault at a byte offset of `text`.
    pub fn at_offset(text: &str, offset: usize, message: impl Into<String>) -> Self {
        let before = text.get(..offset.min(text.len())).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Self::new(line, column, message)
    }

    /// What a parser says of `text`, in one line, where it says it; the begin of `text` where it does not.
    pub fn of_parser(text: &str, span: Option<Range<usize>>, message: &str) -> Self {
        let at = span.map_or(0, |span| span.start);
        Self::at_offset(text, at, message.trim_end().replace('\n', ", "))
    }

    /// What a parser of regular expressions says, in one line: its error draws a picture of the pattern, and the
    /// sentence is the last line of it.
    #[must_use]
    pub fn sentence_of_pattern(error: &dyn fmt::Display) -> String {
        let told = error.to_string();
        told.lines().last().unwrap_or_default().trim().to_owned()
    }

    /// The fault with the name of its file in front: `file:line:column: message`.
    #[must_use]
    pub fn in_file(&self, file: &str) -> String {
        format!("{file}:{self}")
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_knows_its_line_and_column() {
        let text = "one\ntwo thrée four\n";
        let part = &text[text.find("four").expect("it is there")..];
        let fault = ParseError::at(text, part, "not a number");
        assert_eq!((fault.line, fault.column), (2, 11));
        assert_eq!(fault.in_file("a.cfg"), "a.cfg:2:11: not a number");
    }

    #[test]
    fn what_a_parser_says_is_one_line_at_its_place() {
        let fault = ParseError::of_parser("a = 1\nb = 2\n", Some(10..11), "not so\nexpected a text\n");
        assert_eq!(fault.to_string(), "2:5: not so, expected a text");
        assert_eq!(ParseError::of_parser("a", None, "no").to_string(), "1:1: no");
    }

    #[test]
    fn under_the_picture_of_a_pattern_stands_the_sentence() {
        let told = "regex parse error:\n    (a\n    ^\n  error: unclosed group";
        assert_eq!(ParseError::sentence_of_pattern(&told), "error: unclosed group");
        assert_eq!(ParseError::sentence_of_pattern(&""), "");
    }
}
