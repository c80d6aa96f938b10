//! What applying schemes works on: targets, when it is, and the pieces of memory that are chosen.

use crate::attrs::Attrs;
use crate::ops::TargetRange;
use crate::region::Region;
use crate::target_id::TargetId;
use thermo_units::Nanos;

/// A target schemes work on; the regions are the context's own.
#[derive(Debug)]
pub struct TargetMut<'a> {
    /// Which one.
    pub id: TargetId,
    /// Its regions: ascending, disjoint. Schemes cut them where they act on a part only.
    pub regions: &'a mut Vec<Region>,
}

/// What applying depends on besides the schemes and the regions.
#[derive(Debug, Clone, Copy)]
pub struct ApplyInput<'a> {
    /// Which schemes are applied.
    pub turn: Turn,
    /// When it is.
    pub now: Nanos,
    /// Sampling intervals passed since the context began.
    pub passed: u64,
    /// The attributes in force.
    pub attrs: &'a Attrs,
}

/// Which schemes have their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Those whose apply interval is over. To be asked after each sampling interval, and in the last of an aggregation
    /// after merging and before counts are reset.
    Due,
    /// Those that their quota stopped in a snapshot, and that have a new window now: they go on with the regions as
    /// [`Turn::Due`] left them.
    NextWindow,
}

/// A region that matches, or the part of one that filters leave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// Place of its target.
    pub(super) target: usize,
    /// What it is.
    pub(super) run: TargetRange,
    /// Whether a core filter allowed it by name, so that ops filters are not asked.
    pub(super) allowed: bool,
    /// Moving access count of its region, in access checks.
    pub(super) nr_accesses: u32,
    /// Age of its region.
    pub(super) age: u32,
    pub(super) score: u8,
    /// Who goes first among those of one score, higher first.
    pub(super) finer: i64,
}
