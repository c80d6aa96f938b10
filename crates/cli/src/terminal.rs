//! What the reader's terminal can show.

use std::env;
use std::io::{self, IsTerminal};

use thermo_report::Style;

/// How texts on standard output should look.
pub fn style() -> Style {
    of(&io::stdout())
}

/// How texts on standard error should look.
pub fn style_of_stderr() -> Style {
    of(&io::stderr())
}

fn of(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Style {
    let size = rustix::termios::tcgetwinsize(stream)
        .ok()
        .filter(|size| size.ws_col > 0);
    let from_environment = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let default = Style::default();
    Style {
        width: size
            .map(|size| size.ws_col.into())
            .or(from_environment)
            .unwrap_or(default.width),
        height: size.map_or(default.height, |size| size.ws_row.into()),
        ascii: !speaks_utf8(),
        colour: stream.is_terminal()
            && env::var_os("NO_COLOR").is_none()
            && env::var_os("TERM").is_none_or(|term| term != "dumb"),
    }
}

/// By the first of the variables that decide it (locale(7)).
fn speaks_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_default()
        .to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
