//! Filters of a scheme: further conditions on memory that matches the access pattern.
//!
//! Filters are evaluated in order. The first filter that applies to the memory decides whether the memory is
//! allowed or rejected. If no filter applies, the memory is rejected if the last filter of the group allows,
//! and allowed otherwise (Linux 6.14 and newer).

use crate::target_id::TargetId;
use thermo_units::AddrRange;
use thermo_units::Bytes;

/// The filters of a scheme.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filters {
    /// Filters that the engine evaluates. They come first.
    pub core: Vec<CoreFilter>,
    /// Filters that the operations evaluate for each page.
    pub ops: Vec<OpsFilter>,
}

/// A filter on the property `K`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter<K> {
    /// The property of memory that is tested.
    pub kind: K,
    /// True: the filter applies to memory with the property; false: to memory without the property.
    pub matching: bool,
    /// True: the filter allows this memory; false: the filter rejects it.
    pub allow: bool,
}

/// A filter on the location of memory.
pub type CoreFilter = Filter<CoreFilterKind>;

/// A filter on properties of pages.
pub type OpsFilter = Filter<OpsFilterKind>;

/// The property that a core filter tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreFilterKind {
    /// An address range. Regions are split at its ends.
    Addr(AddrRange),
    /// A target. Targets are counted from 0 in the order of their appearance.
    Target(TargetId),
}

/// The property that an ops filter tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpsFilterKind {
    /// Anonymous pages.
    Anon,
    /// Pages charged to this memory control group (path below the controller's mount).
    Memcg(String),
    /// Pages accessed since their last access check.
    Young,
    /// Pages on an active LRU list.
    Active,
    /// Huge pages of a size within these bounds.
    HugepageSize {
        /// Minimum.
        min: Bytes,
        /// Maximum.
        max: Bytes,
    },
    /// Pages that no process maps.
    Unmapped,
}
