//! The name of a target.

/// Names a target for the life of a context; never used again for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u32);
