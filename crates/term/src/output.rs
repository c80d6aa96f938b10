//! Writing data to standard output.

use std::io::{self, Write};

/// Writes `text` and a line end, if it lacks one.
///
/// # Errors
/// Standard output is closed or full.
pub fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let end: &[u8] = if text.ends_with('\n') { b"" } else { b"\n" };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end));
    written.and_then(|()| out.flush()).map_err(failed)
}

/// The error with what failed in its sentence, and of the same kind: a reader that went away is still told from a full
/// disk.
pub fn failed(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Writes `value` as one line of JSON.
///
/// # Errors
/// Standard output is closed or full.
pub fn json(value: &serde_json::Value) -> io::Result<()> {
    text(&value.to_string())
}
