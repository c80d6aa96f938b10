//! Stalls: the time that tasks lost because memory was short.

use std::path::{Path, PathBuf};

use thermo_kernel::psi::{self, Trigger};
use thermo_units::Nanos;

use super::{Source, SourceError};

/// Polls the running total of stalls. Needs no privilege and 3 µs a look, sees stalls far below a millisecond.
#[derive(Debug)]
pub struct PsiTotal {
    path: PathBuf,
    stall: Nanos,
    window: Nanos,
    since: Option<(Nanos, Nanos)>,
}

impl PsiTotal {
    /// Pressure is `stall` of lost time within `window`. `path` is `/proc/pressure/memory` or a group's
    /// `memory.pressure`.
    ///
    /// # Errors
    /// When the file cannot be read: no PSI in this kernel, or off at boot.
    pub fn new(path: &Path, stall: Nanos, window: Nanos) -> Result<Self, SourceError> {
        psi::read(path)?;
        Ok(Self {
            path: path.to_owned(),
            stall,
            window,
            since: None,
        })
    }
}

impl Source for PsiTotal {
    fn name(&self) -> String {
        format!("stalls ({})", self.path.display())
    }

    fn check(&mut self, now: Nanos) -> Result<Option<String>, SourceError> {
        let total = psi::read(&self.path)?;
        let (start, before) = *self.since.get_or_insert((now, total));
        let stalled = total.saturating_sub(before);
        let is_pressure = stalled >= self.stall && stalled > Nanos::ZERO;
        let span = now.saturating_sub(start);
        if is_pressure || span >= self.window {
            self.since = Some((now, total));
        }
        Ok(is_pressure.then(|| format!("tasks stalled {stalled} in {span}")))
    }
}

/// The kernel's own trigger. Without `CAP_SYS_RESOURCE` its window must be a multiple of two seconds, and it first
/// fires after one: then [`PsiTotal`] is the better choice.
#[derive(Debug)]
pub struct PsiTrigger {
    path: PathBuf,
    trigger: Trigger,
}

impl PsiTrigger {
    /// Fires when `stall` is lost in a `window` of 500 ms to 10 s.
    ///
    /// # Errors
    /// When the kernel refuses the window or the file.
    pub fn new(path: &Path, stall: Nanos, window: Nanos) -> Result<Self, SourceError> {
        Ok(Self {
            path: path.to_owned(),
            trigger: Trigger::new(path, stall, window)?,
        })
    }
}

impl Source for PsiTrigger {
    fn name(&self) -> String {
        format!("trigger on stalls ({})", self.path.display())
    }

    fn check(&mut self, _now: Nanos) -> Result<Option<String>, SourceError> {
        let came = self.trigger.wait(Nanos::ZERO)?;
        Ok(came.then(|| "the trigger fired".to_owned()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn pressure_is_enough_lost_time_within_the_window() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        let lost = |micros: u64| {
            std::fs::write(
                &path,
                format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={micros}\n"),
            )
            .unwrap();
        };
        lost(7_000_000);
        let mut source = PsiTotal::new(&path, Nanos::millis(1), Nanos::millis(100)).unwrap();
        let mut ask = |ms| source.check(Nanos::millis(ms)).unwrap();
        assert_eq!(ask(0), None, "what was lost before we came is no news");
        lost(7_000_900);
        assert_eq!(ask(99), None);
        lost(7_001_000);
        assert_eq!(ask(99).unwrap(), "tasks stalled 1.00 ms in 99.0 ms");
        lost(7_001_900);
        assert_eq!(ask(199), None);
        lost(7_002_800);
        assert_eq!(ask(298), None, "900 us in each of two windows");
    }

    #[test]
    fn a_kernel_without_psi_is_an_error_that_names_the_file() {
        let Err(error) = PsiTotal::new(Path::new("/nowhere/memory"), Nanos::ZERO, Nanos::ZERO) else {
            panic!("there is no such file");
        };
        assert!(error.to_string().contains("/nowhere/memory"));
    }
}
