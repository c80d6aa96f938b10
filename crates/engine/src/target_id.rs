//! The identifier of a target.

/// Identifies a target. Unique for the life of a context: never reused for another target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u32);
