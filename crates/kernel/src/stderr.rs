//! Lines on standard error.

/// Prints a line on standard error, like `eprintln!`, and goes on where that fails: a log on a full disk must
/// not end a server.
#[macro_export]
macro_rules! message {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
