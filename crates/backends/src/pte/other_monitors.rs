//! Other monitors that clear accessed bits and record them in folio flags: in-kernel DAMON and the idle-page
//! bitmap.
//!
//! Reading folio flags costs more than the rest of an access check, so they are read only while another
//! monitor exists. This is checked at the start and once a minute, so a new kdamond is noticed up to a minute
//! late.

use std::path::Path;
use std::time::{Duration, Instant};

use thermo_kernel::{damon, page_idle};

/// Interval between checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Whether other monitors exist.
#[derive(Debug, Default)]
pub(super) struct OtherMonitors {
    last_check: Option<Instant>,
    exist: bool,
    /// True if `exist` was set by the caller: no more checks.
    is_assumed: bool,
}

impl OtherMonitors {
    /// Checks the machine at `root`, if the last check is old enough.
    pub(super) fn refresh(&mut self, root: &Path) {
        if !self.is_assumed && self.last_check.is_none_or(|at| at.elapsed() >= CHECK_INTERVAL) {
            self.last_check = Some(Instant::now());
            self.exist = other_monitors_exist(root);
        }
    }

    /// Assumes from now on that other monitors exist, or that none do.
    pub(super) const fn assume(&mut self, exist: bool) {
        (self.exist, self.is_assumed) = (exist, true);
    }

    pub(super) const fn exist(&self) -> bool {
        self.exist
    }
}

/// Whether in-kernel DAMON runs or the idle-page bitmap exists on the machine at `root`.
#[must_use]
pub fn other_monitors_exist(root: &Path) -> bool {
    damon::is_running(root) || page_idle::exists(root)
}
