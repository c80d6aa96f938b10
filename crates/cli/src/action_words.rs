//! Words for the verified effect of an action.

use thermo_engine::Action;

/// What happened to bytes that are verified as changed by `action`; `None` for actions whose effect cannot be
/// verified.
pub const fn verified_effect(action: Action) -> Option<&'static str> {
    match action {
        Action::Pageout => Some("paged out"),
        Action::Hugepage | Action::Collapse => Some("collapsed into huge pages"),
        Action::Nohugepage => Some("split"),
        Action::MigrateHot | Action::MigrateCold => Some("migrated"),
        Action::Stat | Action::Willneed | Action::Cold | Action::LruPrio | Action::LruDeprio => None,
    }
}
