//! Options of a run that come from the command line, not from the configuration file.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thermo_units::Nanos;

/// Access mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Read a byte (`ro`).
    Read,
    /// Write a byte (`wo`).
    #[default]
    Write,
    /// Read a byte and write it back (`rw`).
    ReadWrite,
}

impl Mode {
    /// Name in files and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "ro",
            Self::Write => "wo",
            Self::ReadWrite => "rw",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A value that is none of the known choices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a {what}: use one of {known}")]
pub struct UnknownChoice {
    given: String,
    what: &'static str,
    known: &'static str,
}

impl FromStr for Mode {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        [Self::Read, Self::Write, Self::ReadWrite]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| UnknownChoice {
                given: text.to_owned(),
                what: "read/write mode",
                known: "ro, wo, rw",
            })
    }
}

/// How the kernel is informed at the start of a phase which regions the phase will use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintMethod {
    /// No hints.
    #[default]
    None,
    /// `madvise()`: `MADV_WILLNEED` for regions that will be used, `MADV_COLD` for the others.
    Madvise,
    /// `mlock()` regions that will be used, `munlock()` the others.
    Mlock,
}

impl FromStr for HintMethod {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        match text {
            "none" => Ok(Self::None),
            "madvise" => Ok(Self::Madvise),
            "mlock" => Ok(Self::Mlock),
            _ => Err(UnknownChoice {
                given: text.to_owned(),
                what: "hint method",
                known: "none, madvise, mlock",
            }),
        }
    }
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Access mode of patterns that give none.
    pub default_mode: Mode,
    /// Ask for huge pages for the regions (`MADV_HUGEPAGE`).
    pub huge_pages: bool,
    /// How many times the whole configuration runs.
    pub repeat: u64,
    /// Print nothing.
    pub quiet: bool,
    /// Map the regions and print the ready line, but access nothing.
    pub dry_run: bool,
    /// How the kernel is informed which regions the next phase uses.
    pub hint: HintMethod,
    /// Interval at which the number of accesses is printed; `None` prints none.
    pub log_interval: Option<Nanos>,
    /// Length of the span of each [`crate::Truth`] record; `None` reports no truth.
    pub truth_span: Option<Nanos>,
    /// Seed for drawing patterns and random addresses.
    pub seed: u64,
    /// Set by the caller to end the run early.
    pub stop: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            default_mode: Mode::default(),
            huge_pages: false,
            repeat: 1,
            quiet: false,
            dry_run: false,
            hint: HintMethod::default(),
            log_interval: None,
            truth_span: None,
            seed: 42,
            stop: Arc::default(),
        }
    }
}

impl Options {
    /// Span of truth records for monitoring with an aggregation interval of 100 ms.
    pub const TRUTH_SPAN: Nanos = Nanos::millis(100);
}
