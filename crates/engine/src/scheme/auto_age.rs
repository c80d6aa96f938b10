//! The automatic age: the smallest minimum age whose re-accesses stay within a bound.
//!
//! The controller of software-defined far memory (Lagar-Cavilla et al., ASPLOS 2019, section 4.3): once a
//! minute, it finds the smallest age for which the bound would have held in that minute, from the page-exact
//! tables. The age used is a high percentile of the past choices, or the last one if that is larger. So a
//! burst raises the age at once, and only quiet hours lower it.
//!
//! Re-accesses of paged-out memory count with their whole idle time (`scan::page_states::acted_on`), so the
//! controller sees the refaults that it caused.
//!
//! One age serves all targets of a scheme, because the bound is on their sum: small processes have too few
//! accesses in a minute to decide anything, and the user reads one sentence. A target counts once it has run
//! for [`IGNORED`], and is acted on once it has run for [`WARM_UP`].

use std::collections::{BTreeMap, VecDeque};

use crate::access_tables::{AGE_EDGES_S, AccessTables, NR_AGES};
use crate::target_id::TargetId;
use thermo_units::{Bytes, Nanos, SharePerMinute};

use super::age_decision::{AgeDecision, AgeReason};

/// Nothing of a target is acted on before it has been monitored for this long: accesses at the start of a
/// program are not those of the hours after.
pub const WARM_UP: Nanos = Nanos::secs(180);
/// Accesses of a target do not count before it has been monitored for this long.
const IGNORED: Nanos = Nanos::secs(120);
/// Time between two choices.
const MINUTE: Nanos = Nanos::secs(60);
/// The smallest age. Below, a page costs more to bring back than it saved.
const MIN_AGE: Nanos = Nanos::secs(10);
/// The smallest age in scan passes: a pass is the resolution of ages.
const MIN_PASSES: u64 = 2;
/// Passes over a target that must be complete before its re-accesses count, at first and after a pause. Pages
/// accessed during a pause would count as idle for the length of the pause.
const UNCOUNTED_PASSES: u64 = 2;
/// Percentile of the past choices.
const PERCENTILE: usize = 98;
/// Number of past choices that count. With 100, the percentile forgives two.
const HISTORY: usize = 100;

/// A minimum age that follows the accesses: as small as a bound on re-accesses allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoAge {
    /// Memory older than the age that may be accessed again in a minute, as a share of the working set
    /// ([`AccessTables::working_set`]).
    pub max_refaults: SharePerMinute,
}

impl Default for AutoAge {
    /// 0.2 % a minute, as in the paper.
    fn default() -> Self {
        Self {
            max_refaults: SharePerMinute(2000),
        }
    }
}

/// An index in [`AGE_EDGES_S`]. [`NO_AGE`]: even the largest age is beyond the bound.
type Edge = usize;
const NO_AGE: Edge = NR_AGES;

/// The age of an edge; `None` for [`NO_AGE`].
fn age_of(edge: Edge) -> Option<Nanos> {
    AGE_EDGES_S.get(edge).map(|seconds| Nanos::secs(*seconds))
}

/// Chooses the age of one scheme.
#[derive(Debug, Clone, Default)]
pub(super) struct AgeController {
    targets: BTreeMap<TargetId, Observed>,
    /// Time of the last snapshot; `None` after a pause.
    last_snapshot: Option<Nanos>,
    /// The running minute; `None` while no target counts.
    minute: Option<Minute>,
    /// The last choices, newest last.
    history: VecDeque<Edge>,
    /// The age in force; `None` before the first choice.
    edge: Option<Edge>,
    said_warm_up: bool,
}

/// A monitored target.
#[derive(Debug, Clone, Copy)]
struct Observed {
    since: Nanos,
    /// Re-accesses count once this many passes are complete; `None`: set at the next snapshot.
    counts_from_pass: Option<u64>,
    is_new: bool,
}

/// The accesses since the last choice, over all targets that count.
#[derive(Debug, Clone, Copy)]
struct Minute {
    began: Nanos,
    reaccessed: [Bytes; NR_AGES],
    /// Sum of the working sets at each snapshot.
    working_sets: u128,
    nr_snapshots: u128,
    /// The longest pass.
    pass: Nanos,
}

impl AgeController {
    /// Takes in a snapshot: the page-exact results of every target. Returns the decision if the age changes.
    pub(super) fn observe<'a>(
        &mut self,
        now: Nanos,
        bound: SharePerMinute,
        targets: impl Iterator<Item = (TargetId, &'a AccessTables)>,
    ) -> Option<AgeDecision> {
        let before = std::mem::take(&mut self.targets);
        let since = self.last_snapshot.replace(now).unwrap_or(now);
        for (id, tables) in targets {
            let mut observed = before.get(&id).copied().unwrap_or(Observed::new(now));
            if observed.update(now, tables) {
                let minute = self.minute.get_or_insert_with(|| Minute::new(since));
                minute.add(tables);
            }
            self.targets.insert(id, observed);
        }
        let Some(minute) = &mut self.minute else {
            return self.say_warm_up();
        };
        minute.nr_snapshots += 1;
        if now.saturating_sub(minute.began) < MINUTE {
            return self.say_warm_up();
        }
        let minute = std::mem::replace(minute, Minute::new(now));
        self.choose(&minute.rates(now), bound)
    }

    /// Discards the running minute after a pause of monitoring.
    pub(super) fn resume(&mut self) {
        (self.minute, self.last_snapshot) = (None, None);
        for observed in self.targets.values_mut() {
            observed.counts_from_pass = None;
        }
    }

    /// The age in force; `None`: no memory is acted on.
    pub(super) fn age(&self) -> Option<Nanos> {
        self.edge.and_then(age_of)
    }

    /// The targets that are too new to be acted on.
    pub(super) fn new_targets(&self) -> impl Iterator<Item = TargetId> + '_ {
        let new = self.targets.iter().filter(|(_, observed)| observed.is_new);
        new.map(|(id, _)| *id)
    }

    /// Says once why nothing is done yet.
    fn say_warm_up(&mut self) -> Option<AgeDecision> {
        let is_first = !self.targets.is_empty() && !std::mem::replace(&mut self.said_warm_up, true);
        is_first.then_some(AgeDecision {
            age: None,
            previous: None,
            reason: AgeReason::WarmUp(WARM_UP),
        })
    }

    /// Chooses the age from the rates of the last minute.
    fn choose(&mut self, rates: &Rates, bound: SharePerMinute) -> Option<AgeDecision> {
        let best = rates.smallest_edge(bound);
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(best);
        let edge = best.max(self.percentile());
        let previous = self.edge.replace(edge);
        if previous == Some(edge) {
            return None;
        }
        let reason = if previous.is_some_and(|previous| edge < previous) {
            AgeReason::PastChoices {
                percentile: PERCENTILE,
                nr_minutes: self.history.len(),
                bound,
            }
        } else {
            rates.reason(edge, bound)
        };
        Some(AgeDecision {
            age: age_of(edge),
            previous: previous.and_then(age_of),
            reason,
        })
    }

    /// The smallest edge that is at least [`PERCENTILE`] percent of the past choices.
    fn percentile(&self) -> Edge {
        let mut sorted: Vec<Edge> = self.history.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * PERCENTILE).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(NO_AGE)
    }
}

impl Observed {
    const fn new(now: Nanos) -> Self {
        Self {
            since: now,
            counts_from_pass: None,
            is_new: true,
        }
    }

    /// Takes in the tables of a snapshot. Returns whether they count.
    fn update(&mut self, now: Nanos, tables: &AccessTables) -> bool {
        let monitored = now.saturating_sub(self.since);
        self.is_new = monitored < WARM_UP;
        let first = *self
            .counts_from_pass
            .get_or_insert(tables.nr_passes + UNCOUNTED_PASSES);
        monitored > IGNORED && tables.nr_passes >= first
    }
}

impl Minute {
    const fn new(began: Nanos) -> Self {
        Self {
            began,
            reaccessed: [Bytes::ZERO; NR_AGES],
            working_sets: 0,
            nr_snapshots: 0,
            pass: Nanos::ZERO,
        }
    }

    fn add(&mut self, tables: &AccessTables) {
        for (sum, bytes) in self.reaccessed.iter_mut().zip(&tables.reaccessed) {
            *sum += *bytes;
        }
        self.working_sets += u128::from(tables.working_set().0);
        self.pass = self.pass.max(tables.pass);
    }

    fn rates(&self, now: Nanos) -> Rates {
        let elapsed = u128::from(now.saturating_sub(self.began).0.max(1));
        let mut reaccessed = [Bytes::ZERO; NR_AGES];
        let mut sum = 0;
        for edge in (0..NR_AGES).rev() {
            sum += u128::from(self.reaccessed[edge].0);
            reaccessed[edge] = bytes(sum * u128::from(MINUTE.0) / elapsed);
        }
        Rates {
            reaccessed,
            working_set: bytes(self.working_sets / self.nr_snapshots.max(1)),
            pass: self.pass,
        }
    }
}

fn bytes(bytes: u128) -> Bytes {
    Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Re-accesses of one minute.
#[derive(Debug)]
struct Rates {
    /// Bytes that were accessed again after at least the age of each edge.
    reaccessed: [Bytes; NR_AGES],
    working_set: Bytes,
    pass: Nanos,
}

impl Rates {
    /// The smallest edge that is long enough for the length of passes.
    fn floor(&self) -> Edge {
        let floor = MIN_AGE.max(self.pass * MIN_PASSES);
        let is_above = |edge: &Edge| age_of(*edge).is_some_and(|age| age >= floor);
        (0..NR_AGES).find(is_above).unwrap_or(NO_AGE)
    }

    fn is_within(&self, edge: Edge, bound: SharePerMinute) -> bool {
        self.reaccessed[edge] <= bound.of(self.working_set)
    }

    fn smallest_edge(&self, bound: SharePerMinute) -> Edge {
        let mut edges = self.floor()..NR_AGES;
        edges.find(|edge| self.is_within(*edge, bound)).unwrap_or(NO_AGE)
    }

    /// Why this minute leads to `edge`.
    fn reason(&self, edge: Edge, bound: SharePerMinute) -> AgeReason {
        let floor = self.floor();
        if edge == floor && age_of(edge) != Some(MIN_AGE) {
            return AgeReason::LongPasses(self.pass);
        }
        // Re-accesses at the floor are within the bound; above the floor, those one edge below are not.
        let after = if edge > floor {
            edge - 1
        } else {
            edge.min(NR_AGES - 1)
        };
        AgeReason::Reaccessed {
            bytes: self.reaccessed[after],
            working_set: self.working_set,
            after: age_of(after).unwrap_or_default(),
            bound,
        }
    }
}

#[cfg(test)]
mod tests;
