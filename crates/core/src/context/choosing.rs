//! A budget chooses: which way to look, how often, with how many regions; anew whenever what it costs shows
//! that another choice fits better.

mod chooser;
mod intervals;
mod mean;

pub(super) use self::chooser::Chooser;
use self::chooser::Round;
pub(super) use self::intervals::{LONGEST_ROUND, SHORTEST_ROUND, next_round};
pub(super) use self::mean::MeanCost;
use super::beside::Beside;
use super::{Context, Next};
use crate::attrs::{Attrs, AttrsError};
use crate::budget::{Budget, CpuShare, Looks, Plan, PlannedRounds, Way};
use crate::monitoring::sampled;
use crate::ops::Operations;
use crate::sink::{Event, Sink};
use crate::units::Nanos;

/// The first round takes off all the marks of the past, which costs many times what the later ones do.
pub(super) const LONGEST_FIRST_ROUND: Nanos = Nanos::secs(60);
/// That is so many times, at least: by what later ones cost it is decided which targets rounds can be of.
pub(super) const FIRST_COSTS: u64 = 4;
/// Bringing targets up to date may take this part of the budget: one in so many.
const UPDATE_PART: u64 = 8;

impl Context {
    /// While a budget has it look at every page, each target has room for `count` regions, also where all of them
    /// have more than the attributes allow: regions are found from pages then, and cost next to nothing. To be said after
    /// [`Context::with_budget`]; without a budget it has no meaning.
    #[must_use]
    pub const fn with_regions_each(mut self, count: usize) -> Self {
        if let Some(chooser) = &mut self.chooser {
            chooser.regions_each = count;
        }
        self
    }

    /// How many regions there may be now.
    pub(super) fn most_regions(&self) -> usize {
        match self.way {
            Way::Sweep => self.most_regions_of_pages(),
            Way::Sample if self.is_parted() => self.attrs.max_nr_regions + self.most_regions_of_pages(),
            Way::Sample => self.attrs.max_nr_regions,
        }
    }

    /// How many of them targets may have that are told of by their pages.
    pub(super) fn most_regions_of_pages(&self) -> usize {
        let Some(chooser) = &self.chooser else {
            return self.attrs.max_nr_regions;
        };
        let asked = match self.way {
            Way::Sweep => self.attrs.max_nr_regions,
            Way::Sample => chooser.asked.max_nr_regions / 2,
        };
        let room = chooser.regions_each.saturating_mul(self.nr_swept());
        asked.max(room).max(1)
    }

    /// How many regions are sampled.
    fn nr_sampled_regions(&self) -> usize {
        sampled(&self.targets).map(|target| target.regions.len()).sum()
    }

    /// Changes the attributes but for the intervals, which a budget goes on choosing. False, and nothing is changed, where
    /// there is none, or the intervals are others than were asked for: then [`Context::set_attrs`] is what is meant.
    ///
    /// # Errors
    /// When `attrs` contradict themselves; nothing changes then.
    pub fn set_bounds(&mut self, attrs: &Attrs) -> Result<bool, AttrsError> {
        attrs.check()?;
        let intervals = |attrs: &Attrs| (attrs.sample, attrs.aggr);
        let Some(chooser) = &mut self.chooser else {
            return Ok(false);
        };
        if intervals(attrs) != intervals(&chooser.asked) {
            return Ok(false);
        }
        if attrs.max_nr_regions != chooser.asked.max_nr_regions {
            chooser.regions_each = 0;
        }
        chooser.asked = *attrs;
        let most = match self.way {
            Way::Sweep => attrs.max_nr_regions,
            // As many as the budget pays for; soon chosen anew.
            Way::Sample => self.attrs.max_nr_regions.min(attrs.max_nr_regions),
        };
        self.attrs = Attrs {
            sample: self.attrs.sample,
            aggr: self.attrs.aggr,
            max_nr_regions: most,
            ..*attrs
        };
        Ok(true)
    }

    /// Makes it stay within `share` of one CPU, choosing among `looks`. Before the first step.
    #[must_use]
    pub fn with_budget(mut self, share: CpuShare, looks: Looks) -> Self {
        self.chooser = Some(Chooser::new(share, looks, self.attrs));
        self
    }

    /// Tells what looking has cost so far, all in all. After every step, where a budget is to be kept.
    pub fn spent(&mut self, now: Nanos, total: Nanos) {
        let until_update = self.until_update(now);
        let Some(chooser) = &mut self.chooser else { return };
        let cost = total.saturating_sub(chooser.total);
        chooser.budget.spend(now, cost);
        chooser.total = total;
        let share = chooser.share();
        let beside = chooser.beside.as_mut();
        let is_of_beside = beside.is_some_and(|beside| beside.add(cost, share));
        if is_of_beside || std::mem::take(&mut chooser.is_new_account) {
            // Samples are planned by what samples cost.
            chooser.total_at_start += cost;
        }
        if std::mem::take(&mut chooser.updated) {
            let rest = chooser.share().time_for(cost) * UPDATE_PART;
            self.schedule.next_update = now.saturating_add(until_update.max(rest));
        }
    }

    /// When to really call again, now that it is known what the step that said `next` has cost: calling in debt
    /// would only add to it.
    #[must_use]
    pub fn rest(&self, next: Next) -> Next {
        let Some(chooser) = &self.chooser else { return next };
        match next {
            Next::At(due) => Next::At(due.max(chooser.budget.free_at().min(self.schedule.next_update))),
            Next::Finished => Next::Finished,
        }
    }

    /// With a budget, a step that brought the targets up to date does nothing else, so that it is known what
    /// that costs. True when the step is over.
    pub(super) fn ends_step_after_update(&mut self) -> bool {
        self.chooser.as_mut().is_some_and(|chooser| {
            chooser.updated = true;
            true
        })
    }

    pub(super) fn choose_first(&mut self, now: Nanos, ops: &dyn Operations, sink: &mut dyn Sink) {
        let Some(chooser) = &mut self.chooser else { return };
        chooser.budget = Budget::new(chooser.budget.share(), now);
        chooser.can_sweep = ops.can_sweep();
        if chooser.looks == Looks::Sweep && !chooser.can_sweep {
            let text = "every page cannot be looked at here: looking at a page of each region instead";
            sink.on(&Event::Warning { now, text });
        }
        self.choose_anew(now, sink);
    }

    /// Chooses as if nothing were known of what looking costs.
    pub(super) fn choose_anew(&mut self, now: Nanos, sink: &mut dyn Sink) {
        if self.is_any_delicate() {
            return self.part_from_sweeps(now, sink);
        }
        let can_sweep = self.chooser.as_ref().is_some_and(|chooser| chooser.can_sweep);
        let warms_up = self.is_to_warm_up(can_sweep);
        let Some(chooser) = &mut self.chooser else { return };
        chooser.end_rounds();
        chooser.beside = warms_up.then(|| Beside::first_round(chooser.total));
        let (way, attrs) = chooser.first(can_sweep);
        self.adopt(now, way, attrs, sink);
    }

    /// Sweeps from now on, at once.
    pub(super) fn choose_sweeps(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let Some(chooser) = &mut self.chooser else { return };
        chooser.end_rounds();
        chooser.try_again();
        let (way, attrs) = chooser.first(true);
        self.adopt(now, way, attrs, sink);
    }

    /// What it will begin with where a budget chooses, on operations that can sweep or not.
    #[must_use]
    pub fn first_plan(&self, can_sweep: bool) -> Option<Plan> {
        let chooser = self.chooser.as_ref()?;
        let (way, attrs) = match self.is_to_warm_up(can_sweep) {
            true => (Way::Sample, chooser.samples_within(chooser.share().half())),
            false => chooser.first(can_sweep),
        };
        Some(Plan {
            share: chooser.share(),
            way,
            attrs,
            rounds: None,
            nr_delicate: 0,
        })
    }

    /// The plan in force, where a budget chooses.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        let chooser = self.chooser.as_ref()?;
        let beside = self.beside().filter(|_| self.is_parted());
        let rounds = beside.and_then(|beside| beside.rounds.as_ref());
        Some(Plan {
            share: chooser.share(),
            way: self.way,
            attrs: Attrs {
                max_nr_regions: self.most_regions(),
                ..self.attrs
            },
            rounds: rounds.map(|rounds| PlannedRounds {
                nr_targets: self.nr_swept(),
                of: self.targets.len(),
                each: rounds.each,
            }),
            nr_delicate: self.nr_delicate(),
        })
    }

    /// Looks at what the aggregation that just ended cost, and whether another choice fits better.
    pub(super) fn choose_after_aggregation(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let nr_regions = self.nr_sampled_regions();
        let Some(chooser) = &mut self.chooser else { return };
        let cost = chooser.total.saturating_sub(chooser.total_at_start);
        chooser.total_at_start = chooser.total;
        if chooser.is_free() && chooser.retry_at.is_some_and(|then| now >= then) {
            return self.try_sweeps_again(now, sink);
        }
        let next = match self.way {
            _ if chooser.looks == Looks::Asked => None,
            Way::Sweep => match chooser.after_round(cost, &self.attrs, self.targets.len()) {
                Round::Fits => None,
                Round::FitsEach(attrs) => Some((Way::Sweep, attrs)),
                Round::TooLong => return self.give_up_sweeps(now, sink),
            },
            Way::Sample => chooser
                .after_samples(cost, &self.attrs)
                .map(|attrs| (Way::Sample, attrs)),
        };
        chooser.nr_regions = nr_regions;
        if let Some((way, attrs)) = next {
            self.adopt(now, way, attrs, sink);
        }
    }

    /// Samples from now on if the round that is under way shows already that sweeps are too slow.
    pub(super) fn give_up_slow_round(&mut self, began: Nanos, now: Nanos, sink: &mut dyn Sink) {
        let Some(chooser) = &mut self.chooser else { return };
        let mut longest = chooser.longest_round(self.targets.len()) * 2;
        if !chooser.swept_once {
            longest = longest.max(LONGEST_FIRST_ROUND);
        }
        if chooser.looks == Looks::Auto && now.saturating_sub(began) > longest {
            self.give_up_sweeps(now, sink);
        }
    }

    pub(super) fn adopt(&mut self, now: Nanos, way: Way, attrs: Attrs, sink: &mut dyn Sink) {
        if way != self.way {
            self.look_alike(way);
        }
        self.change_to(attrs);
        self.aggr_start = Some(now);
        self.tell_plan(now, sink);
    }

    pub(super) fn tell_plan(&self, now: Nanos, sink: &mut dyn Sink) {
        if let Some(plan) = self.plan() {
            sink.on(&Event::Planned { now, plan: &plan });
        }
    }
}
