//! The injected call and its result.

use thermo_units::{AddrRange, Nanos};

/// The huge-page flag of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HugeFlag {
    /// Huge pages, also if the system mode is `madvise`.
    HugePage,
    /// Base pages only.
    NoHugePage,
}

impl HugeFlag {
    /// The advice number for madvise(2).
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

    /// Its two-letter name in the VmFlags of `smaps`.
    #[must_use]
    pub const fn vm_flag(self) -> &'static str {
        match self {
            Self::HugePage => "hg",
            Self::NoHugePage => "nh",
        }
    }

    /// The other flag.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::HugePage => Self::NoHugePage,
            Self::NoHugePage => Self::HugePage,
        }
    }
}

/// A `madvise` call for the target to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The range.
    pub range: AddrRange,
    /// The flag to set.
    pub flag: HugeFlag,
}

/// The result of an injected call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Injected {
    /// The thread that made it.
    pub tid: u32,
    /// The result of the call in the target: 0, or an errno.
    pub errno: i32,
    /// How long that thread was stopped.
    pub stopped: Nanos,
}
