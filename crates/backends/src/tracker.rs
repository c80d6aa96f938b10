//! The interface of trackers, which find out which pages of processes were accessed.
//!
//! A tracker clears the accessed bits of the probes' pages ([`Tracker::prepare`]) and later reports which
//! bits were set again ([`Tracker::check`]). A tracker never fails. If it cannot find out, for example
//! because the process ended, the result is [`CheckResult::Unknown`].
//!
//! [`CheckResult::Unknown`]: thermo_engine::ops::CheckResult::Unknown

use thermo_engine::ops::Probe;
use thermo_engine::scan::{Preparation, ScanChunk};
use thermo_targets::{Inspector, Process, Processes};
use thermo_units::{Addr, AddrRange, Nanos};

/// Finds out which pages were accessed.
pub trait Tracker {
    /// Clears the accessed bits of the pages of `probes`, which are sorted by target and address.
    fn prepare(&mut self, processes: &Processes, probes: &[Probe]);

    /// Sets `seen` of the probes last prepared (same probes, same order): whether their pages were accessed
    /// since.
    fn check(&mut self, processes: &Processes, probes: &mut [Probe]);

    /// Whether the tracker can scan every page ([`Tracker::scan`]).
    fn can_scan(&self) -> bool {
        false
    }

    /// Whether passes over all targets must begin together.
    fn scans_jointly(&self) -> bool {
        false
    }

    /// Whether the tracker reads the young flags of folios, in which in-kernel DAMON and the idle-page bitmap
    /// record the accessed bits they cleared.
    fn reads_young_flags(&self) -> bool {
        false
    }

    /// Whether the tracker sees accesses by guests of virtual machines. They set no accessed bit in the page
    /// tables of the host process.
    fn sees_guests(&self) -> bool {
        false
    }

    /// Does the next part of a walk over the shared memory of `processes`; `first`: a walk begins. All passes
    /// until the next walk use its result. Ready at once if nothing has to be walked.
    fn prepare_walk(&mut self, _processes: &Processes, _first: bool) -> Preparation {
        Preparation::Ready
    }

    /// Begins a pass over `process`. Every page is then given to [`Tracker::scan`] once, in as many parts and
    /// as slowly as the caller likes. Passes over several targets may overlap.
    fn begin_pass(&mut self, _process: &Process) {}

    /// Reads the accessed bits of all pages of `range` into `chunk` and clears them, as part of a pass that
    /// [`Tracker::begin_pass`] began. Returns how far the scan got: behind the end of `range` if nothing is
    /// mapped up to there.
    fn scan(&mut self, _process: &Process, range: AddrRange, _chunk: &mut ScanChunk) -> Addr {
        range.end
    }

    /// Forgets targets that are not in `processes`.
    fn keep_only(&mut self, _processes: &Processes) {}

    /// Allows walks of at most `max_time` each that clear the accessed bits of pages mapped more than once
    /// and of locked mappings, for scans. False: the tracker cannot walk.
    fn enable_shared_walks(&mut self, _max_time: Nanos) -> bool {
        false
    }

    /// Makes scans keep active pages on the active list, for schemes that sort the LRU lists.
    fn keep_active_pages(&mut self) {}

    /// Assumes that other monitors (in-kernel DAMON, the idle-page bitmap) exist or not, instead of looking
    /// for them. For a process that serves DAMON's control files: reading them would wait for itself.
    fn assume_other_monitors(&mut self, _exist: bool) {}

    /// The page inspector for actions, if the tracker reads page tables.
    fn inspector(&mut self) -> Inspector<'_> {
        None
    }
}
