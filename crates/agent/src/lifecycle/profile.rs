//! Reclaim profiles: which memory of a cached application is reclaimed, and how.

use std::fmt;
use std::str::FromStr;

use thermo_actions::hint::PageKind;
use thermo_engine::Action;

/// A reclaim profile. The names are those of Android's `CachedAppOptimizer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Page out anonymous pages, deactivate file pages. A fault from zram is faster than one from a disk.
    Full,
    /// Page out anonymous pages.
    Anon,
    /// Reclaim file pages: write back dirty pages, drop clean ones.
    File,
    /// Deactivate file pages: they are reclaimed only under memory pressure.
    Some,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 4] = [Self::Full, Self::Anon, Self::File, Self::Some];

    /// The name in configurations and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Anon => "anon",
            Self::File => "file",
            Self::Some => "some",
        }
    }

    /// The actions, each with the kind of page it applies to, in order.
    #[must_use]
    pub const fn steps(self) -> &'static [(Action, PageKind)] {
        match self {
            Self::Full => &[(Action::Pageout, PageKind::Anon), (Action::Cold, PageKind::File)],
            Self::Anon => &[(Action::Pageout, PageKind::Anon)],
            Self::File => &[(Action::Pageout, PageKind::File)],
            Self::Some => &[(Action::Cold, PageKind::File)],
        }
    }

    /// True if the profile needs swap. Such profiles are throttled like Android's FULL, the others like its
    /// SOME.
    #[must_use]
    pub const fn needs_swap(self) -> bool {
        matches!(self, Self::Full | Self::Anon)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown profile {0:?}: use full, anon, file or some")]
pub struct UnknownProfile(pub String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Self, UnknownProfile> {
        let mut all = Self::ALL.into_iter();
        all.find(|profile| profile.name() == text)
            .ok_or_else(|| UnknownProfile(text.chars().take(40).collect()))
    }
}
