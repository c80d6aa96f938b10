//! The numbers of the header, as what they mean.

use thermo_actions::hint::{Hint, Hinted, Kind, SkipReason};
use thermo_engine::ops::Skip;
use thermo_engine::{Action, TargetId};
use thermo_units::{AddrRange, Bytes};

use crate::layout::{DRY, SKIP_YOUNG, ThermoHint, ThermoLimits, ThermoResult, UNSEEN};

/// In the order of `enum thermo_action`.
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
    /// What is meant; nothing when it cannot be.
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
    /// The kind of pages that is meant, if these limits mean anything.
    #[expect(clippy::option_option, reason = "no kind is a kind, and neither is a mistake")]
    pub(crate) const fn kind(&self) -> Option<Option<Kind>> {
        if self.flags & !(DRY | SKIP_YOUNG) != 0 {
            return None;
        }
        match self.kind {
            0 => Some(None),
            1 => Some(Some(Kind::Anon)),
            2 => Some(Some(Kind::File)),
            _ => None,
        }
    }
}

impl ThermoResult {
    /// What came of a hint, in numbers.
    pub(crate) fn of(hinted: &Hinted) -> Self {
        let most = hinted.left.iter().max_by_key(|(_, bytes)| *bytes);
        Self {
            advised: hinted.advised.0,
            changed: hinted.changed.map_or(UNSEEN, |bytes| bytes.0),
            left: hinted.left.iter().map(|(_, bytes)| *bytes).sum::<Bytes>().0,
            reason: most.map_or(0, |(why, _)| reason(*why)),
            refused: u32::from(hinted.error.is_some()),
        }
    }
}

/// `enum thermo_reason`.
const fn reason(why: SkipReason) -> u32 {
    match why {
        SkipReason::ByteLimit | SkipReason::CpuLimit | SkipReason::Deadline => 10,
        SkipReason::Unsupported => 13,
        SkipReason::Skip(skip) => match skip {
            Skip::NotPresent => 1,
            Skip::Shared => 2,
            Skip::Locked => 3,
            Skip::Unadvisable => 4,
            Skip::Filtered | Skip::Young => 5,
            Skip::SwapFloor => 6,
            Skip::Refaults => 7,
            Skip::TargetGone => 8,
            Skip::Refused => 9,
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
    fn numbers_that_mean_nothing_are_refused() {
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
        assert_eq!(limits.kind(), Some(Some(Kind::Anon)));
        assert_eq!(ThermoLimits { flags: 4, ..limits }.kind(), None);
        assert_eq!(ThermoLimits { kind: 3, ..limits }.kind(), None);
    }

    #[test]
    fn the_reason_is_that_of_most_bytes() {
        let hinted = Hinted {
            advised: Bytes(5),
            changed: None,
            left: vec![
                (SkipReason::Skip(Skip::Shared), Bytes(1)),
                (SkipReason::Deadline, Bytes(9)),
            ],
            error: None,
        };
        let result = ThermoResult {
            advised: 5,
            changed: UNSEEN,
            left: 10,
            reason: 10,
            refused: 0,
        };
        assert_eq!(ThermoResult::of(&hinted), result);
    }
}
