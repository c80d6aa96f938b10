//! What is done to the memory of an application that is put away.

use std::fmt;
use std::str::FromStr;

use thermo_actions::hint::Kind;
use thermo_engine::Action;

/// Which memory, and how thoroughly. The words are Android's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Anonymous pages are paged out, pages of files deactivated: swap in memory is quicker than a disk.
    Full,
    /// Anonymous pages are paged out.
    Anon,
    /// Pages of files are reclaimed: those written to go to their files, the others are dropped.
    File,
    /// Pages of files are deactivated: nothing is lost unless memory runs short.
    Some,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Full, Self::Anon, Self::File, Self::Some];

    /// The word in configurations and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Anon => "anon",
            Self::File => "file",
            Self::Some => "some",
        }
    }

    /// What is done, in this order.
    #[must_use]
    pub const fn steps(self) -> &'static [(Action, Kind)] {
        match self {
            Self::Full => &[(Action::Pageout, Kind::Anon), (Action::Cold, Kind::File)],
            Self::Anon => &[(Action::Pageout, Kind::Anon)],
            Self::File => &[(Action::Pageout, Kind::File)],
            Self::Some => &[(Action::Cold, Kind::File)],
        }
    }

    /// True when swap is needed for it: throttled as Android's FULL, the others as its SOME.
    #[must_use]
    pub const fn takes_swap(self) -> bool {
        matches!(self, Self::Full | Self::Anon)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no profile: use full, anon, file or some")]
pub struct UnknownProfile(pub String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Self, UnknownProfile> {
        let mut all = Self::ALL.into_iter();
        all.find(|profile| profile.name() == text)
            .ok_or_else(|| UnknownProfile(text.chars().take(40).collect()))
    }
}
