//! Stalls (PSI): time that tasks lost waiting for memory.

use std::path::{Path, PathBuf};

use thermo_kernel::psi::{self, Trigger};
use thermo_units::Nanos;

use super::{Source, SourceError};

/// Polls the cumulative stall time. Needs no privilege, costs 3 µs a check, and resolves stalls far below a
/// millisecond.
#[derive(Debug)]
pub struct PsiTotal {
    path: PathBuf,
    stall: Nanos,
    window: Nanos,
    window_start: Option<(Nanos, Nanos)>,
}

impl PsiTotal {
    /// Pressure: `stall` of lost time within `window`. `path` is `/proc/pressure/memory` or the
    /// `memory.pressure` of a control group.
    ///
    /// # Errors
    /// The file cannot be read: the kernel has no PSI, or PSI is disabled at boot.
    pub fn new(path: &Path, stall: Nanos, window: Nanos) -> Result<Self, SourceError> {
        psi::stall(path)?;
        Ok(Self {
            path: path.to_owned(),
            stall,
            window,
            window_start: None,
        })
    }
}

impl Source for PsiTotal {
    fn name(&self) -> String {
        format!("stalls ({})", self.path.display())
    }

    fn check(&mut self, now: Nanos) -> Result<Option<String>, SourceError> {
        let total = psi::stall(&self.path)?;
        let (start, before) = *self.window_start.get_or_insert((now, total));
        let stalled = total.saturating_sub(before);
        let is_pressure = stalled >= self.stall && stalled > Nanos::ZERO;
        let span = now.saturating_sub(start);
        if is_pressure || span >= self.window {
            self.window_start = Some((now, total));
        }
        Ok(is_pressure.then(|| format!("tasks stalled {stalled} in {span}")))
    }
}

/// A kernel PSI trigger. Without `CAP_SYS_RESOURCE`, its window must be a multiple of 2 s and it fires only
/// after a full window; then [`PsiTotal`] is the better choice.
#[derive(Debug)]
pub struct PsiTrigger {
    path: PathBuf,
    trigger: Trigger,
}

impl PsiTrigger {
    /// Fires on `stall` of lost time within a `window` of 500 ms to 10 s.
    ///
    /// # Errors
    /// The kernel rejects the window or the file.
    pub fn new(path: &Path, stall: Nanos, window: Nanos) -> Result<Self, SourceError> {
        Ok(Self {
            path: path.to_owned(),
            trigger: Trigger::new(path, stall, window)?,
        })
    }
}

impl Source for PsiTrigger {
    fn name(&self) -> String {
        format!("PSI trigger ({})", self.path.display())
    }

    fn check(&mut self, _now: Nanos) -> Result<Option<String>, SourceError> {
        let fired = self.trigger.wait(Nanos::ZERO)?;
        Ok(fired.then(|| "the trigger fired".to_owned()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn psi_total_reports_enough_stall_within_window() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        let write_total = |micros: u64| {
            std::fs::write(
                &path,
                format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={micros}\n"),
            )
            .unwrap();
        };
        write_total(7_000_000);
        let mut source = PsiTotal::new(&path, Nanos::millis(1), Nanos::millis(100)).unwrap();
        let mut check = |ms| source.check(Nanos::millis(ms)).unwrap();
        assert_eq!(check(0), None, "stalls before the first check do not count");
        write_total(7_000_900);
        assert_eq!(check(99), None);
        write_total(7_001_000);
        assert_eq!(check(99).unwrap(), "tasks stalled 1.00 ms in 99.0 ms");
        write_total(7_001_900);
        assert_eq!(check(199), None);
        write_total(7_002_800);
        assert_eq!(
            check(298),
            None,
            "900 us in each of two windows is below the threshold"
        );
    }

    #[test]
    fn psi_total_error_names_missing_file() {
        let Err(error) = PsiTotal::new(Path::new("/nowhere/memory"), Nanos::ZERO, Nanos::ZERO) else {
            panic!("the file does not exist");
        };
        assert!(error.to_string().contains("/nowhere/memory"));
    }
}
