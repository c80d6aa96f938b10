//! Others that clear accessed bits and note that in folio flags: in-kernel DAMON and the idle-page bitmap.
//!
//! Asking for folio flags costs more than the rest of an access check, so it is done only while such another exists. That
//! is looked up at the start and once a minute: a kdamond that starts is noticed up to a minute late.

use std::path::Path;
use std::time::{Duration, Instant};

use thermo_kernel::{damon, page_idle};

/// How often it is looked up.
const EVERY: Duration = Duration::from_secs(60);

/// Whether there are any.
#[derive(Debug, Default)]
pub(super) struct Others {
    looked: Option<Instant>,
    are_present: bool,
    /// Whether they are never looked up again.
    are_fixed: bool,
}

impl Others {
    /// Looks them up on the machine at `root`, if it is time to.
    pub(super) fn look(&mut self, root: &Path) {
        if !self.are_fixed && self.looked.is_none_or(|at| at.elapsed() >= EVERY) {
            self.looked = Some(Instant::now());
            self.are_present = others_clear_accessed_bits(root);
        }
    }

    /// Takes them to be present or not from now on.
    pub(super) const fn fix(&mut self, are_present: bool) {
        (self.are_present, self.are_fixed) = (are_present, true);
    }

    pub(super) const fn are_present(&self) -> bool {
        self.are_present
    }
}

/// Whether there are any on the machine at `root`.
#[must_use]
pub fn others_clear_accessed_bits(root: &Path) -> bool {
    damon::runs(root) || page_idle::exists(root)
}
