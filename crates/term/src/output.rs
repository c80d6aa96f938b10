//! Writes data to standard output.

use std::io::{self, Write};

/// Writes `text`, with a newline if it lacks one.
///
/// # Errors
/// Standard output is closed or full.
pub fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let newline: &[u8] = if text.ends_with('\n') { b"" } else { b"\n" };
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| out.write_all(newline));
    written.and_then(|()| out.flush()).map_err(write_error)
}

/// Adds "cannot write to standard output" to an error and keeps its kind, so that a closed pipe is still
/// distinguished from a full disk.
pub fn write_error(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Writes `value` as one line of JSON.
///
/// # Errors
/// Standard output is closed or full.
pub fn json(value: &serde_json::Value) -> io::Result<()> {
    text(&value.to_string())
}
