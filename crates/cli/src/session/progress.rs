//! The progress line of a session, on terminals only.

use std::io::{self, IsTerminal, Write};

use thermo_report::HeatSizes;
use thermo_units::{Bytes, Nanos, printable};

/// A line on standard error that the next one overwrites.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    on_terminal: bool,
}

/// Contents of the line.
#[derive(Debug, Clone, Copy)]
pub struct State {
    /// Time since the session began.
    pub elapsed: Nanos,
    /// Regions over all targets.
    pub nr_regions: usize,
    /// Resident memory by heat.
    pub sizes: HeatSizes,
    /// Progress of the first scan pass, in percent of the memory of targets without a complete pass.
    pub first_pass: Option<u64>,
    /// Our own CPU time since the session began, in percent of one CPU.
    pub cpu_percent: f64,
}

impl Progress {
    /// Shows nothing when standard error is not a terminal.
    pub fn new() -> Self {
        Self {
            shown: false,
            on_terminal: io::stderr().is_terminal(),
        }
    }

    /// Whether standard error is a terminal.
    pub const fn is_shown(&self) -> bool {
        self.on_terminal
    }

    /// Shows the line.
    pub fn show(&mut self, state: &State) {
        if self.on_terminal {
            self.show_text(&line(state));
        }
    }

    /// Shows `text` as the line.
    pub fn show_text(&mut self, text: &str) {
        if self.on_terminal {
            // An error means that the terminal is gone.
            drop(write!(io::stderr(), "\r\x1b[K{text}"));
            self.shown = true;
        }
    }

    /// Clears the line, so that something else can be printed.
    pub fn clear(&mut self) {
        if self.shown {
            drop(write!(io::stderr(), "\r\x1b[K"));
            self.shown = false;
        }
    }

    /// Prints `text` on a line of its own.
    pub fn print(&mut self, text: &str) {
        self.clear();
        thermo_kernel::message!("thermo: {}", printable(text));
    }
}

fn line(state: &State) -> String {
    let State {
        elapsed,
        nr_regions,
        sizes,
        first_pass,
        cpu_percent,
    } = state;
    let stage = match first_pass {
        Some(percent) => format!("pass 1: {percent}%"),
        None => format!("{nr_regions} regions"),
    };
    let bytes = |share: thermo_report::heat::Share| Bytes(share.bytes).to_string();
    format!(
        "{:>4} s {stage} hot {} warm {} cold {} unknown {}% CPU {cpu_percent:.1}%",
        elapsed.0 / 1_000_000_000,
        bytes(sizes.hot),
        bytes(sizes.warm),
        bytes(sizes.cold),
        unknown_percent(sizes),
    )
}

/// The share of resident memory whose idle age is unknown, rounded up.
fn unknown_percent(sizes: &HeatSizes) -> u64 {
    let unknown = u128::from(sizes.unknown.bytes) * 100;
    let percent = unknown.div_ceil(u128::from(sizes.total().max(1)));
    u64::try_from(percent).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_fits_80_columns() {
        let share = thermo_report::heat::Share {
            bytes: 123_456_789_012,
            share: 0.25,
        };
        let sizes = HeatSizes {
            hot: share,
            warm: share,
            cold: share,
            unknown: share,
        };
        let state = State {
            elapsed: Nanos::secs(3599),
            nr_regions: 1000,
            sizes,
            first_pass: None,
            cpu_percent: 10.0,
        };
        let text = line(&state);
        assert!(text.chars().count() <= 80, "{text}");
        assert!(text.contains("3599 s 1000 regions"), "{text}");
        let state = State {
            first_pass: Some(37),
            ..state
        };
        let text = line(&state);
        assert!(text.chars().count() <= 80, "{text}");
        assert!(text.contains("3599 s pass 1: 37% hot"), "{text}");
    }
}
