//! Files that people write (schemes, workloads, experiments): reading them, and errors in them with line and
//! column.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::ops::Range;
use std::path::Path;

use crate::Bytes;

/// The largest file that is read. People write files of kilobytes.
const MAX_FILE: Bytes = Bytes::mib(4);

/// The text of a file that people write. No more than 4 MiB are read, so a device or another file by mistake
/// costs no more memory than that.
///
/// # Errors
/// The file cannot be read, is larger, or is not UTF-8.
pub fn read_file(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE.0 + 1).read_to_end(&mut bytes)?;
    let refuse = |why: String| Err(io::Error::new(ErrorKind::InvalidData, why));
    if bytes.len() as u64 > MAX_FILE.0 {
        return refuse(format!("it is larger than {MAX_FILE}: is it the right file?"));
    }
    String::from_utf8(bytes).or_else(|error| {
        let offset = error.utf8_error().valid_up_to();
        refuse(format!("byte {offset} is not UTF-8 text: is it the right file?"))
    })
}

/// An error at a position of a text. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The line.
    pub line: usize,
    /// The column in it.
    pub column: usize,
    /// One sentence: the error and the way out.
    pub message: String,
}

impl ParseError {
    /// An error at a known line and column.
    pub fn new(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            column,
            message: message.into(),
        }
    }

    /// An error at `part`, which must be a slice of `text`; otherwise at the start of `text`.
    pub fn at(text: &str, part: &str, message: impl Into<String>) -> Self {
        let offset = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
        Self::at_offset(text, if offset <= text.len() { offset } else { 0 }, message)
    }

    /// An error at a byte offset of `text`.
    pub fn at_offset(text: &str, offset: usize, message: impl Into<String>) -> Self {
        let before = text.get(..offset.min(text.len())).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Self::new(line, column, message)
    }

    /// The error of another parser, joined to one line, at the span it reports; without a span, at the start
    /// of `text`.
    pub fn from_parser(text: &str, span: Option<Range<usize>>, message: &str) -> Self {
        let at = span.map_or(0, |span| span.start);
        Self::at_offset(text, at, message.trim_end().replace('\n', ", "))
    }

    /// The one-sentence message of a regex error. The error shows the pattern over several lines; its last
    /// line is the sentence.
    #[must_use]
    pub fn regex_message(error: &dyn fmt::Display) -> String {
        let message = error.to_string();
        message.lines().last().unwrap_or_default().trim().to_owned()
    }

    /// The error with its file: `file:line:column: message`.
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
    fn error_at_slice_has_line_and_column() {
        let text = "one\ntwo thrée four\n";
        let part = &text[text.find("four").expect("the text contains it")..];
        let error = ParseError::at(text, part, "not a number");
        assert_eq!((error.line, error.column), (2, 11));
        assert_eq!(error.in_file("a.cfg"), "a.cfg:2:11: not a number");
    }

    #[test]
    fn file_is_read_to_a_bound() {
        let why = |path: &str| read_file(Path::new(path)).map_err(|error| error.to_string());
        let endless = why("/dev/zero");
        assert_eq!(
            endless,
            Err("it is larger than 4.00 MiB: is it the right file?".into())
        );
        assert_eq!(why("/dev/null"), Ok(String::new()));
        let program = why("/proc/self/exe").expect_err("a program is no text");
        assert!(program.ends_with("is it the right file?"), "{program}");
        let missing = read_file(Path::new("/nonexistent")).expect_err("there is no such file");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn parser_error_is_one_line_at_its_span() {
        let error = ParseError::from_parser("a = 1\nb = 2\n", Some(10..11), "not so\nexpected a text\n");
        assert_eq!(error.to_string(), "2:5: not so, expected a text");
        assert_eq!(ParseError::from_parser("a", None, "no").to_string(), "1:1: no");
    }

    #[test]
    fn regex_message_is_last_line_of_error() {
        let message = "regex parse error:\n    (a\n    ^\n  error: unclosed group";
        assert_eq!(ParseError::regex_message(&message), "error: unclosed group");
        assert_eq!(ParseError::regex_message(&""), "");
    }
}
