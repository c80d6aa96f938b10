//! Writing data to standard output.

use std::io::{self, Write};

/// Writes `text` and a line end, if it lacks one.
///
/// # Errors
/// Standard output is closed or full.
pub fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Writes `value` as one line of JSON.
///
/// # Errors
/// Standard output is closed or full.
pub fn json(value: &serde_json::Value) -> io::Result<()> {
    text(&value.to_string())
}
