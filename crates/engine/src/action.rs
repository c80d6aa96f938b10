//! Actions that a scheme can apply to memory.

use std::fmt;
use std::str::FromStr;

use thermo_units::Bytes;
use thermo_units::PAGE_SIZE;

/// The action applied to regions that match a scheme. Names are those of DAMON's `action` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Count and report the matching regions. Memory is not changed.
    Stat,
    /// Read the memory from swap or file before it is used.
    Willneed,
    /// Make the memory the first to be reclaimed under memory pressure.
    Cold,
    /// Reclaim the memory now.
    Pageout,
    /// Allow transparent huge pages.
    Hugepage,
    /// Forbid transparent huge pages.
    Nohugepage,
    /// Collapse the memory into huge pages now.
    Collapse,
    /// Move the pages towards the active end of the LRU lists.
    LruPrio,
    /// Move the pages towards the inactive end of the LRU lists.
    LruDeprio,
    /// Migrate the memory to another NUMA node, hottest first.
    MigrateHot,
    /// Migrate the memory to another NUMA node, coldest first.
    MigrateCold,
}

/// Order in which an action takes regions when a quota does not allow all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Hottest first.
    Hot,
    /// Coldest first.
    Cold,
    /// No order.
    None,
}

impl Action {
    /// All actions, in the order in which user interfaces list them.
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

    /// Size and alignment of the memory that the action applies to: a huge page or a page.
    #[must_use]
    pub const fn unit(self) -> Bytes {
        match self {
            Self::Hugepage | Self::Nohugepage | Self::Collapse => Bytes::mib(2),
            _ => Bytes(PAGE_SIZE),
        }
    }

    /// True if the action moves memory to another node, which the scheme names.
    #[must_use]
    pub const fn migrates(self) -> bool {
        matches!(self, Self::MigrateHot | Self::MigrateCold)
    }

    /// True if the action is meant for cold memory, so that unknown memory is skipped.
    #[must_use]
    pub const fn requires_cold(self) -> bool {
        matches!(self.priority(), Priority::Cold) || matches!(self, Self::Nohugepage)
    }

    /// Order of regions under a quota.
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

/// A text that is not the name of an action.
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
    fn action_names_parse_and_appear_in_error() {
        for action in Action::ALL {
            assert_eq!(action.name().parse(), Ok(action));
            assert!(UnknownAction("x".into()).to_string().contains(action.name()));
        }
        assert!("PAGEOUT".parse::<Action>().is_err());
    }
}
