//! Which of the matching memory a scheme takes.
//!
//! Filters are asked in order; the first whose type matches (or, with `matching` false, does not) decides:
//! allowed or left alone. When none decides, memory is left alone if the last filter of the group allows, and
//! taken otherwise (Linux 6.14 and newer).

use crate::target_id::TargetId;
use thermo_units::AddrRange;
use thermo_units::Bytes;

/// The filters of a scheme.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filters {
    /// Those the engine answers itself. They come first.
    pub core: Vec<CoreFilter>,
    /// Those the operations answer page by page.
    pub ops: Vec<OpsFilter>,
}

/// A filter on what `K` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter<K> {
    /// What it looks at.
    pub kind: K,
    /// Whether it speaks of what matches (true) or of what does not.
    pub matching: bool,
    /// Whether that is allowed (true) or left alone.
    pub allow: bool,
}

/// A filter on where memory lies.
pub type CoreFilter = Filter<CoreFilterKind>;

/// A filter on what a page is.
pub type OpsFilter = Filter<OpsFilterKind>;

/// What a core filter looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreFilterKind {
    /// Addresses. Regions are split at its borders.
    Addr(AddrRange),
    /// A target, counted from 0 in the order targets appeared.
    Target(TargetId),
}

/// What an ops filter looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpsFilterKind {
    /// Anonymous pages.
    Anon,
    /// Pages charged to this memory control group (path below the controller's mount).
    Memcg(String),
    /// Pages touched since they were last looked at.
    Young,
    /// Pages on an active LRU list.
    Active,
    /// Huge pages of a size within these bounds.
    HugepageSize {
        /// The least.
        min: Bytes,
        /// The most.
        max: Bytes,
    },
    /// Pages no process maps.
    Unmapped,
}
