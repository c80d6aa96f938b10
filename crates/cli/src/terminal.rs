//! Size, colours and character set of the terminal.

use std::env;
use std::io::{self, IsTerminal};

use thermo_report::Style;

/// The style of texts on standard output.
pub fn stdout_style() -> Style {
    style_of(&io::stdout())
}

/// The style of texts on standard error.
pub fn stderr_style() -> Style {
    style_of(&io::stderr())
}

fn style_of(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Style {
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
        ascii: !locale_is_utf8(),
        colour: stream.is_terminal()
            && env::var_os("NO_COLOR").is_none()
            && env::var_os("TERM").is_none_or(|term| term != "dumb"),
    }
}

/// The first of these variables that is set decides (locale(7)).
fn locale_is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_default()
        .to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
