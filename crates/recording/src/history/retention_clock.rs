//! The time by which segments age.

use std::path::Path;

use thermo_units::Nanos;

use super::error::HistoryError;
use super::limits::Clocks;
use super::store::segments;

/// The time by which segments age: it goes on only while the program runs, from the newest segment at its
/// start. A wall clock that is stepped forward, or wrong at the start, makes no segment old. A machine that
/// was off keeps what it had for as long again; the bound on bytes holds in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionClock {
    begin: Clocks,
}

impl RetentionClock {
    /// Begins at the newest segment below `state_dir`, without any at `now`.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn begin(state_dir: &Path, now: Clocks) -> Result<Self, HistoryError> {
        let newest = segments(state_dir)?.last().map(|segment| segment.start);
        let begin = Clocks {
            unix: newest.map_or(now.unix, |newest| newest.min(now.unix)),
            ..now
        };
        Ok(Self { begin })
    }

    /// The Unix time from which ages count.
    #[must_use]
    pub fn now(&self, now: Clocks) -> Nanos {
        let passed = now.monotonic.saturating_sub(self.begin.monotonic);
        self.begin.unix.saturating_add(passed).min(now.unix)
    }
}
