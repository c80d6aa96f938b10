//! How a configuration is run: what the command line decides, not the file.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thermo_units::Nanos;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// It reads a byte (`ro`).
    Read,
    /// It writes a byte (`wo`).
    #[default]
    Write,
    /// It reads a byte and writes it back (`rw`).
    ReadWrite,
}

impl Mode {
    /// The word in files and flags.
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

/// A word that names none of the choices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a {what}: use one of {known}")]
pub struct UnknownWord {
    given: String,
    what: &'static str,
    known: &'static str,
}

impl FromStr for Mode {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        [Self::Read, Self::Write, Self::ReadWrite]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| UnknownWord {
                given: text.to_owned(),
                what: "read/write mode",
                known: "ro, wo, rw",
            })
    }
}

/// How the system is told at the begin of a phase which regions the phase will use, and which it will not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintMethod {
    /// Not at all.
    #[default]
    None,
    /// `madvise()`: `MADV_WILLNEED` for what will be used, `MADV_COLD` for the rest.
    Madvise,
    /// `mlock()` what will be used, `munlock()` the rest.
    Mlock,
}

impl FromStr for HintMethod {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "none" => Ok(Self::None),
            "madvise" => Ok(Self::Madvise),
            "mlock" => Ok(Self::Mlock),
            _ => Err(UnknownWord {
                given: text.to_owned(),
                what: "hint method",
                known: "none, madvise, mlock",
            }),
        }
    }
}

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What an access does where the pattern does not say.
    pub default_mode: Mode,
    /// Ask for huge pages for the regions (`MADV_HUGEPAGE`).
    pub huge_pages: bool,
    /// How many times the whole configuration is run.
    pub repeat: u64,
    /// Print nothing.
    pub quiet: bool,
    /// Map the regions and say so, but make no access.
    pub dry_run: bool,
    /// Tell the system what will be used.
    pub hint: HintMethod,
    /// Print how many accesses were made, each time this span has passed.
    pub log_interval: Option<Nanos>,
    /// Length of the spans the truth is told in; `None`: it is not told.
    pub truth_span: Option<Nanos>,
    /// What draws pieces of work and random addresses.
    pub seed: u64,
    /// Set from outside to end the run early.
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
    /// The length of a truth span that trackers at 100 ms aggregations are judged by.
    pub const TRUTH_SPAN: Nanos = Nanos::millis(100);
}
