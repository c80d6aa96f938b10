//! The call that a target is made to make, and what came of it.

use thermo_units::{AddrRange, Nanos};

/// What a mapping's memory may be made of from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HugeFlag {
    /// Huge pages, also where the machine's mode is `madvise`.
    HugePage,
    /// Small pages only.
    NoHugePage,
}

impl HugeFlag {
    /// The number of the advice.
    #[must_use]
    pub const fn advice(self) -> i32 {
        match self {
            Self::HugePage => libc::MADV_HUGEPAGE,
            Self::NoHugePage => libc::MADV_NOHUGEPAGE,
        }
    }

    /// The name of the advice.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HugePage => "MADV_HUGEPAGE",
            Self::NoHugePage => "MADV_NOHUGEPAGE",
        }
    }

    /// The kernel's two letters for it in `smaps`.
    #[must_use]
    pub const fn letters(self) -> &'static str {
        match self {
            Self::HugePage => "hg",
            Self::NoHugePage => "nh",
        }
    }

    /// The other one.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::HugePage => Self::NoHugePage,
            Self::NoHugePage => Self::HugePage,
        }
    }
}

/// A call to be made by the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// On what.
    pub range: AddrRange,
    /// Which advice.
    pub flag: HugeFlag,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Injected {
    /// The thread that made it.
    pub tid: u32,
    /// What the kernel answered the target: 0, or the number of an error.
    pub errno: i32,
    /// How long that thread stood still.
    pub stopped: Nanos,
}
