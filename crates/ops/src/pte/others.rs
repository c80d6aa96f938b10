//! Others that clear accessed bits and note that in folio flags: in-kernel DAMON and the idle-page bitmap.
//!
//! Asking for folio flags costs more than the rest of an access check, so it is done only while such another exists. That
//! is looked up at the start and once a minute: a kdamond that starts is noticed up to a minute late.

use std::path::Path;
use std::time::{Duration, Instant};

use thermo_sys::{damon, page_idle};

/// How often it is looked up.
const EVERY: Duration = Duration::from_secs(60);

/// Whether there are any.
#[derive(Debug, Default)]
pub(super) struct Others {
    looked: Option<Instant>,
    are_present: bool,
}

impl Others {
    /// Looks them up on the machine at `root`, if it is time to.
    pub(super) fn look(&mut self, root: &Path) {
        if self.looked.is_none_or(|at| at.elapsed() >= EVERY) {
            self.looked = Some(Instant::now());
            self.are_present = damon::runs(root) || page_idle::exists(root);
        }
    }

    pub(super) const fn are_present(&self) -> bool {
        self.are_present
    }
}
