//! Converts between the structs of the header and the types of the library.

use thermo_actions::hint::{Hint, HintResult, PageKind, SkipReason};
use thermo_engine::ops::Skip;
use thermo_engine::{Action, TargetId};
use thermo_units::{AddrRange, Bytes};

use crate::layout::{DRY, SKIP_YOUNG, ThermoHint, ThermoLimits, ThermoResult, UNKNOWN};

/// Actions in the order of `enum thermo_action`.
pub(crate) const ACTIONS: [Action; 8] = [
    Action::Stat,
    Action::Cold,
    Action::Pageout,
    Action::Willneed,
    Action::LruPrio,
    Action::LruDeprio,
    Action::Hugepage,
    Action::Collapse,
];

impl ThermoHint {
    /// The hint; `None` for an unknown action or an end before the start.
    pub(crate) fn hint(&self) -> Option<Hint> {
        let action = usize::try_from(self.action)
            .ok()
            .and_then(|nth| ACTIONS.get(nth))?;
        (self.start <= self.end).then(|| Hint {
            target: TargetId(self.process),
            range: AddrRange::new(self.start, self.end),
            action: *action,
        })
    }
}

impl ThermoLimits {
    /// The page kind, with `Some(None)` for all pages; `None` for an unknown kind or flag.
    #[expect(
        clippy::option_option,
        reason = "the outer option is validity, the inner one the kind"
    )]
    pub(crate) const fn kind(&self) -> Option<Option<PageKind>> {
        if self.flags & !(DRY | SKIP_YOUNG) != 0 {
            return None;
        }
        match self.kind {
            0 => Some(None),
            1 => Some(Some(PageKind::Anon)),
            2 => Some(Some(PageKind::File)),
            _ => None,
        }
    }
}

impl ThermoResult {
    /// Converts the result of a hint.
    pub(crate) fn new(result: &HintResult) -> Self {
        let main = result.skipped.iter().max_by_key(|(_, bytes)| *bytes);
        Self {
            advised: result.advised.0,
            changed: result.changed.map_or(UNKNOWN, |bytes| bytes.0),
            skipped: result.skipped.iter().map(|(_, bytes)| *bytes).sum::<Bytes>().0,
            reason: main.map_or(0, |(why, _)| reason(*why)),
            refused: u32::from(result.error.is_some()),
        }
    }
}

/// The value of `enum thermo_reason`.
const fn reason(why: SkipReason) -> u32 {
    match why {
        SkipReason::ByteLimit | SkipReason::CpuLimit | SkipReason::Deadline => 10,
        SkipReason::Skip(skip) => match skip {
            Skip::NotPresent => 1,
            Skip::Shared => 2,
            Skip::Locked => 3,
            Skip::Unadvisable => 4,
            Skip::Filtered | Skip::Young => 5,
            Skip::SwapFloor => 6,
            Skip::Refaults => 7,
            Skip::TargetGone => 8,
            Skip::NotPermitted => 9,
            Skip::Unsupported => 13,
            Skip::Cancelled => 11,
            Skip::DryRun => 12,
            _ => 14,
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn unknown_numbers_are_rejected() {
        let hint = ThermoHint {
            process: 3,
            action: 2,
            start: 4096,
            end: 8192,
        };
        assert_eq!(hint.hint().unwrap().action, Action::Pageout);
        assert!(ThermoHint { action: 8, ..hint }.hint().is_none());
        assert!(ThermoHint { end: 4095, ..hint }.hint().is_none());
        let limits = ThermoLimits {
            kind: 1,
            flags: 3,
            ..ThermoLimits::default()
        };
        assert_eq!(limits.kind(), Some(Some(PageKind::Anon)));
        assert_eq!(ThermoLimits { flags: 4, ..limits }.kind(), None);
        assert_eq!(ThermoLimits { kind: 3, ..limits }.kind(), None);
    }

    #[test]
    fn reason_is_that_of_most_bytes() {
        let result = HintResult {
            advised: Bytes(5),
            changed: None,
            skipped: vec![
                (SkipReason::Skip(Skip::Shared), Bytes(1)),
                (SkipReason::Deadline, Bytes(9)),
            ],
            error: None,
        };
        let expected = ThermoResult {
            advised: 5,
            changed: UNKNOWN,
            skipped: 10,
            reason: 10,
            refused: 0,
        };
        assert_eq!(ThermoResult::new(&result), expected);
    }
}
