//! A tracker: a way to see which pages of processes were touched.
//!
//! Each takes off the accessed marks of the probes' pages ([`Tracker::prepare`]) and later tells which marks
//! came back ([`Tracker::check`]). A tracker never fails: what it cannot tell, such as pages of a process that
//! died meanwhile, is [`Seen::Unknown`].
//!
//! [`Seen::Unknown`]: thermo_engine::ops::Seen::Unknown

use thermo_engine::ops::Probe;
use thermo_engine::scan::{Preparation, ScanChunk};
use thermo_targets::{Inspector, Process, Processes};
use thermo_units::{Addr, AddrRange, Nanos};

/// A way to see which pages were touched.
pub trait Tracker {
    /// Takes the accessed marks off the pages of `probes`, which come sorted by target, then address.
    fn prepare(&mut self, processes: &Processes, probes: &[Probe]);

    /// Answers in `seen`, for the probes last prepared (the same, in the same order), whether they were touched
    /// since.
    fn check(&mut self, processes: &Processes, probes: &mut [Probe]);

    /// Whether it can scan every page ([`Tracker::scan`]).
    fn can_scan(&self) -> bool {
        false
    }

    /// Whether passes over all targets must begin together.
    fn scans_jointly(&self) -> bool {
        false
    }

    /// Whether it sees the accessed marks that in-kernel DAMON and the idle-page bitmap took off before it, in the
    /// flag by which they keep account of them.
    fn sees_marks_taken(&self) -> bool {
        false
    }

    /// Whether it sees what virtual machines touch, which leaves no mark in the page tables of who runs them.
    fn sees_guests(&self) -> bool {
        false
    }

    /// Does the next part of a walk over the shared memory of `processes`; `first` says that a walk begins. All passes until
    /// the next walk answer by what it found. Ready at once where nothing is walked.
    fn prepare_walk(&mut self, _processes: &Processes, _first: bool) -> Preparation {
        Preparation::Ready
    }

    /// Begins a pass over `process`: every page of it is given to [`Tracker::scan`] once, in as many pieces and as
    /// slowly as the caller likes. Passes over several targets may overlap.
    fn begin_pass(&mut self, _process: &Process) {}

    /// Reads the accessed bits of all pages of `range` into `chunk` and clears them, as a part of a pass that
    /// [`Tracker::begin_pass`] began. Returns how far it got: behind the end of `range` when nothing is mapped up to there.
    fn scan(&mut self, _process: &Process, range: AddrRange, _chunk: &mut ScanChunk) -> Addr {
        range.end
    }

    /// Forgets targets that are not among `processes`.
    fn keep_only(&mut self, _processes: &Processes) {}

    /// Consents to walks that clear the accessed bits of pages that are mapped more than once and of locked mappings, each
    /// of at most `longest`. Scans only. False: it cannot walk.
    fn walk_shared(&mut self, _longest: Nanos) -> bool {
        false
    }

    /// Has scans leave active pages active, for schemes that sort the kernel's lists.
    fn keep_active(&mut self) {}

    /// Takes others that clear accessed bits to be present or not, and never looks them up: whoever serves DAMON's control
    /// files must not wait for an answer of them.
    fn fix_others(&mut self, _are_present: bool) {}

    /// What lets actions look at page tables, if it reads them.
    fn inspector(&mut self) -> Inspector<'_> {
        None
    }
}
