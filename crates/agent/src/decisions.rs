//! The last decisions, with their reasons. Results of actions come each second; they are summed up, so that
//! a target has at most one decision of a kind a minute.

use std::collections::{BTreeMap, VecDeque};

use thermo_engine::ops::{Applied, Skip};
use thermo_units::{Bytes, Nanos};

use crate::api::{Decision, DecisionKind, UnixMillis};

/// Decisions that are kept. Beyond, the policy with the most of them loses its oldest: a policy of many
/// targets leaves those of the others.
const MAX_KEPT: usize = 4096;
/// Time between two decisions of a kind about a target.
const EVERY: Nanos = Nanos::secs(60);

/// What a sum is about: policy, target, action, kind, and the reason.
type Key = (String, String, String, DecisionKind, String);

/// The last decisions.
#[derive(Debug, Default)]
pub struct Decisions {
    kept: VecDeque<Decision>,
    /// How many of them each policy has.
    by_policy: BTreeMap<String, usize>,
    last_number: u64,
    /// Pending sums, with the earliest time at which each becomes a decision.
    sums: BTreeMap<Key, (u64, Nanos)>,
}

impl Decisions {
    /// Adds a decision.
    pub fn add(&mut self, time_ms: UnixMillis, decision: Decision) {
        self.last_number += 1;
        let decision = Decision {
            number: self.last_number,
            time_ms,
            ..decision
        };
        if self.kept.len() >= MAX_KEPT {
            self.drop_oldest();
        }
        *self.by_policy.entry(decision.policy.clone()).or_default() += 1;
        self.kept.push_back(decision);
    }

    fn drop_oldest(&mut self) {
        let largest = self.by_policy.iter().max_by_key(|(_, kept)| **kept);
        let Some(policy) = largest.map(|(policy, _)| policy.clone()) else {
            return;
        };
        if let Some(oldest) = self.kept.iter().position(|kept| kept.policy == policy) {
            self.kept.remove(oldest);
        }
        match self.by_policy.get_mut(&policy) {
            Some(kept) if *kept > 1 => *kept -= 1,
            _ => drop(self.by_policy.remove(&policy)),
        }
    }

    /// Adds the result of an action. `because` says why the memory matched.
    pub fn add_applied(
        &mut self,
        (policy, target): (&str, &str),
        (action, because): (&str, &str),
        applied: &Applied,
    ) {
        let mut sum = |kind, why: &str, bytes: Bytes| {
            if bytes > Bytes::ZERO {
                let key = (policy.into(), target.into(), action.into(), kind, why.into());
                self.sums.entry(key).or_default().0 += bytes.0;
            }
        };
        let acted = applied.changed.unwrap_or(applied.applied);
        sum(DecisionKind::Acted, because, acted);
        for (why, bytes) in &applied.skipped {
            match why {
                Skip::NotPresent | Skip::Cancelled => {}
                Skip::DryRun => sum(DecisionKind::WouldAct, because, *bytes),
                why => sum(DecisionKind::Skipped, reason(*why), *bytes),
            }
        }
    }

    /// Makes decisions of the sums that have waited long enough.
    pub fn tell(&mut self, now: Nanos, time_ms: UnixMillis) {
        let mut due = Vec::new();
        self.sums.retain(|key, (bytes, from)| {
            if *from > now {
                return true;
            }
            if *bytes == 0 {
                // Nothing came for a while: the next is told at once.
                return false;
            }
            due.push((key.clone(), std::mem::take(bytes)));
            *from = now.saturating_add(EVERY);
            true
        });
        for ((policy, target, action, kind, why), bytes) in due {
            let target = Some(target);
            let decision = Decision {
                policy,
                target,
                kind,
                action,
                bytes,
                why,
                ..Decision::default()
            };
            self.add(time_ms, decision);
        }
    }

    /// The kept decisions after number `after`, of one target or policy if it is given.
    #[must_use]
    pub fn after(&self, after: u64, target: Option<&str>, policy: Option<&str>) -> Vec<Decision> {
        let fits = |decision: &&Decision| {
            decision.number > after
                && target.is_none_or(|target| decision.target.as_deref() == Some(target))
                && policy.is_none_or(|policy| decision.policy == policy)
        };
        self.kept.iter().filter(fits).cloned().collect()
    }
}

/// Why memory was left alone, as a sentence.
const fn reason(why: Skip) -> &'static str {
    match why {
        Skip::NotPresent => "The pages are not in memory.",
        Skip::Resident => "The pages are in memory already.",
        Skip::Young => "The pages were accessed since they were scanned.",
        Skip::Shared => {
            "Other processes map the pages too, and the kernel pages out only what one process maps."
        }
        Skip::Locked => "The pages are locked into memory.",
        Skip::Unadvisable => "The mapping does not allow it: it belongs to a device, or to hugetlb.",
        Skip::Unreadable => "The process itself may not read the mapping.",
        Skip::Userfaultfd => "The program handles the page faults of the mapping itself (userfaultfd).",
        Skip::Filtered => "A filter of the scheme excludes the pages.",
        Skip::SwapFloor => "Too little swap is free, or there is none.",
        Skip::Refaults => "Too much of what was paged out in the last minute came back.",
        Skip::Incompressible => "The contents do not compress: too little was saved.",
        Skip::OnNode => "The pages are on the node already.",
        Skip::NodeFull => "The node has too little free memory.",
        Skip::Cpuset => "The cpuset of the process forbids the node.",
        Skip::CoolDown => "The pages were moved too recently.",
        Skip::Busy => "The kernel uses the pages at the moment, or they are pinned.",
        Skip::NoHugePage => "The kernel found no free huge page.",
        Skip::CgroupLimit => "The memory limit of the control group allows no huge page.",
        Skip::SwapCache => "The swap device did not take the pages: they stay in memory, in the swap cache.",
        Skip::TargetGone => "The process has ended.",
        Skip::NotAnswering => "The process is not answering: its address space is locked.",
        Skip::NotPermitted => "The agent lacks the right to act on the process.",
        Skip::Unsupported => "The kernel does not offer the call, or a system call filter hides it.",
        Skip::Refused => "The kernel refused it.",
        Skip::DryRun => "The policy only counts what it would do.",
        Skip::Cancelled => "The policy or the target was held back.",
        // A reason that is newer than this table still has a name.
        other => other.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(acted: u64, young: u64) -> Applied {
        Applied {
            applied: Bytes(acted),
            skipped: vec![(Skip::Young, Bytes(young))],
            ..Applied::default()
        }
    }

    #[test]
    fn results_are_summed_up_a_minute() {
        let mut decisions = Decisions::default();
        let mut told = |acted, young, now| {
            let last = decisions.last_number;
            decisions.add_applied(("p", "t"), ("pageout", "It was idle."), &applied(acted, young));
            decisions.tell(Nanos::secs(now), now * 1000);
            let fresh = decisions.after(last, None, None);
            fresh
                .iter()
                .map(|decision| (decision.kind, decision.bytes))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(5, 0, 1), [(DecisionKind::Acted, 5)], "the first at once");
        assert_eq!(told(6, 2, 2), [(DecisionKind::Skipped, 2)]);
        assert_eq!(told(7, 0, 60), []);
        assert_eq!(told(8, 0, 61), [(DecisionKind::Acted, 21)]);
        assert_eq!(decisions.after(2, Some("t"), Some("p")).len(), 1);
        assert!(decisions.after(0, Some("other"), None).is_empty());
    }

    #[test]
    fn number_of_decisions_is_bounded() {
        let mut decisions = Decisions::default();
        for _ in 0..MAX_KEPT + 5 {
            decisions.add(1, Decision::default());
        }
        let kept = decisions.after(0, None, None);
        assert_eq!((kept.len(), kept[0].number), (MAX_KEPT, 6));
    }

    #[test]
    fn many_decisions_of_one_policy_leave_those_of_others() {
        let mut decisions = Decisions::default();
        let mut add = |policy: &str, nr: usize| {
            for _ in 0..nr {
                let policy = policy.to_owned();
                decisions.add(
                    1,
                    Decision {
                        policy,
                        ..Decision::default()
                    },
                );
            }
        };
        add("quiet", 2);
        add("noisy", 3 * MAX_KEPT);
        assert_eq!(decisions.after(0, None, Some("quiet")).len(), 2);
        assert_eq!(decisions.after(0, None, None).len(), MAX_KEPT);
        assert_eq!(decisions.by_policy.values().sum::<usize>(), MAX_KEPT);
    }
}
