//! What a scheme can do to memory.

use std::fmt;
use std::str::FromStr;

use thermo_units::Bytes;
use thermo_units::PAGE_SIZE;

/// What is done to the regions that match a scheme. Names are those of DAMON's `action` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Nothing: the matching regions are counted and reported.
    Stat,
    /// Bring it in from swap or file ahead of use.
    Willneed,
    /// Make it the first to be reclaimed under pressure.
    Cold,
    /// Reclaim it now.
    Pageout,
    /// Let the kernel use huge pages for it.
    Hugepage,
    /// Do not let the kernel use huge pages for it.
    Nohugepage,
    /// Collapse it into huge pages now.
    Collapse,
    /// Move it up on the LRU lists.
    LruPrio,
    /// Move it down on the LRU lists.
    LruDeprio,
    /// Migrate it to another node, hottest first.
    MigrateHot,
    /// Migrate it to another node, coldest first.
    MigrateCold,
}

/// Which regions an action takes first when a quota does not allow all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// The hottest first.
    Hot,
    /// The coldest first.
    Cold,
    /// All alike.
    None,
}

impl Action {
    /// All of them, in the order they are listed to users.
    pub const ALL: [Self; 11] = [
        Self::Stat,
        Self::Willneed,
        Self::Cold,
        Self::Pageout,
        Self::Hugepage,
        Self::Nohugepage,
        Self::Collapse,
        Self::LruPrio,
        Self::LruDeprio,
        Self::MigrateHot,
        Self::MigrateCold,
    ];

    /// The name in files and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Willneed => "willneed",
            Self::Cold => "cold",
            Self::Pageout => "pageout",
            Self::Hugepage => "hugepage",
            Self::Nohugepage => "nohugepage",
            Self::Collapse => "collapse",
            Self::LruPrio => "lru_prio",
            Self::LruDeprio => "lru_deprio",
            Self::MigrateHot => "migrate_hot",
            Self::MigrateCold => "migrate_cold",
        }
    }

    /// The size of what it is done to: a huge page, whole and aligned, or a page.
    #[must_use]
    pub const fn unit(self) -> Bytes {
        match self {
            Self::Hugepage | Self::Nohugepage | Self::Collapse => Bytes::mib(2),
            _ => Bytes(PAGE_SIZE),
        }
    }

    /// Whether it is for memory that is not in use, so that memory of which that is not known is left alone.
    #[must_use]
    pub const fn is_for_cold(self) -> bool {
        matches!(self.priority(), Priority::Cold) || matches!(self, Self::Nohugepage)
    }

    /// Which regions go first under a quota.
    #[must_use]
    pub const fn priority(self) -> Priority {
        match self {
            Self::Cold | Self::Pageout | Self::LruDeprio | Self::MigrateCold => Priority::Cold,
            Self::Hugepage | Self::Collapse | Self::LruPrio | Self::MigrateHot => Priority::Hot,
            Self::Stat | Self::Willneed | Self::Nohugepage => Priority::None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an action: use one of stat, willneed, cold, pageout, hugepage, nohugepage, collapse, lru_prio, lru_deprio, migrate_hot, migrate_cold"
)]
pub struct UnknownAction(pub String);

impl FromStr for Action {
    type Err = UnknownAction;

    fn from_str(text: &str) -> Result<Self, UnknownAction> {
        Self::ALL
            .into_iter()
            .find(|action| action.name() == text)
            .ok_or_else(|| UnknownAction(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_read_back_from_its_name_and_listed_in_the_error() {
        for action in Action::ALL {
            assert_eq!(action.name().parse(), Ok(action));
            assert!(UnknownAction("x".into()).to_string().contains(action.name()));
        }
        assert!("PAGEOUT".parse::<Action>().is_err());
    }
}
