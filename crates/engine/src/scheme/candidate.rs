//! Input of applying schemes: the targets, the time, and the memory that is selected.

use crate::attrs::Attrs;
use crate::ops::TargetRange;
use crate::region::Region;
use crate::target_id::TargetId;
use thermo_units::Nanos;

/// A target that schemes are applied to. It borrows the context's regions.
#[derive(Debug)]
pub struct TargetMut<'a> {
    /// Identifier.
    pub id: TargetId,
    /// Regions: ascending, disjoint. A scheme splits a region if it acts on a part only.
    pub regions: &'a mut Vec<Region>,
}

/// Input of [`apply_schemes`](super::apply_schemes) besides the schemes and the regions.
#[derive(Debug, Clone, Copy)]
pub struct ApplyInput<'a> {
    /// Selects the schemes that are applied.
    pub trigger: ApplyTrigger,
    /// The current time.
    pub now: Nanos,
    /// Sampling intervals since the context began.
    pub passed_sample_intervals: u64,
    /// The current monitoring attributes.
    pub attrs: &'a Attrs,
}

/// Why schemes are applied now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyTrigger {
    /// Schemes whose apply interval has ended. Used after each sampling interval. In the last sampling
    /// interval of an aggregation: after merging, before access counts are reset.
    ApplyInterval,
    /// Schemes whose quota ended before all memory of the last snapshot was tried, and whose next quota
    /// window has begun. They continue with the same regions.
    QuotaWindow,
}

/// A matching region, or the part of a region that passes the core filters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// Index of the target in the input.
    pub(super) target_index: usize,
    /// Target and address range.
    pub(super) target_range: TargetRange,
    /// True if a core filter allowed the range explicitly. Ops filters are then skipped.
    pub(super) allowed: bool,
    /// Moving access count of the region, in access checks.
    pub(super) nr_accesses: u32,
    /// Age of the region, in aggregations.
    pub(super) age: u32,
    pub(super) score: u8,
    /// Order among candidates with the same score, higher first.
    pub(super) tie_break: i64,
}
