//! The automatic age on a simulated machine, over hours: workloads with known periods of re-access.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::scheme::{AutoAge, Scheme};
use thermo_engine::{Action, Attrs, Context, Event, TargetId};
use thermo_sim::{Machine, PageLocation};
use thermo_units::{Bytes, Nanos, PAGE_SIZE, SharePerMinute};

use common::{idle_for, pages, run_until};

/// Pages of each part of the process.
const PART: u64 = 128;
const MINUTE: u64 = 60;

/// A process whose parts are accessed page by page, each page once a period (in seconds).
struct Workload {
    id: TargetId,
    machine: Machine,
    context: Context,
    periods: Vec<Option<u64>>,
    now: Nanos,
    touched: Nanos,
    /// The ages in force, in seconds, as stated in the log.
    ages: Vec<Option<u64>>,
    /// Refaulted and accessed pages in each minute.
    minutes: Vec<(u64, u64)>,
}

impl Workload {
    fn new(periods: &[Option<u64>], auto_age: AutoAge) -> Self {
        let mut machine = Machine::new();
        machine.scans = true;
        machine.knows_resident = true;
        machine.cost_of_scanning = Nanos(10);
        let all = pages(0, PART * periods.len() as u64);
        let id = machine.spawn(&[all]);
        machine.touch(id, all);
        let mut scheme = Scheme::new(Action::Pageout);
        scheme.pattern = idle_for(Nanos::ZERO);
        scheme.auto_age = Some(auto_age);
        let mut context = Context::new(Attrs::default(), 1)
            .unwrap()
            .with_budget(CpuShare(10_000), MethodPolicy::Auto);
        context.set_schemes(vec![scheme]).unwrap();
        Self {
            id,
            machine,
            context,
            periods: periods.to_vec(),
            now: Nanos::ZERO,
            touched: Nanos::ZERO,
            ages: Vec::new(),
            minutes: Vec::new(),
        }
    }

    /// Runs for `minutes`.
    fn run(&mut self, minutes: u64) {
        for _ in 0..minutes {
            let until = Nanos::secs((self.minutes.len() as u64 + 1) * MINUTE);
            let (mut refaults, mut accesses) = (0, 0);
            let (id, periods, touched) = (self.id, &self.periods, &mut self.touched);
            let touch = |machine: &mut Machine, now: Nanos| {
                for (part, period) in (0..).zip(periods).filter_map(|(part, p)| Some((part, (*p)?))) {
                    let due = |at: Nanos| at.0 / (Nanos::secs(period).0 / PART);
                    for nth in due(*touched)..due(now) {
                        let page = part * PART + nth % PART;
                        let range = pages(page, page + 1);
                        machine.change(id, range, |page| {
                            refaults += u64::from(page.location == PageLocation::Swapped);
                        });
                        machine.touch(id, range);
                        accesses += 1;
                    }
                }
                *touched = now;
            };
            let ages = &mut self.ages;
            let mut sink = |event: &Event<'_>| {
                if let Event::AutoAge { decision, .. } = event {
                    ages.push(decision.age.map(|age| age.0 / Nanos::secs(1).0));
                }
            };
            // `run()` begins at the time of the last step.
            self.now = thermo_sim::run(
                &mut self.context,
                &mut self.machine,
                &mut sink,
                self.now,
                until,
                touch,
            )
            .unwrap();
            self.minutes.push((refaults, accesses));
        }
    }

    fn swapped(&self, part: u64) -> u64 {
        self.machine
            .count(self.id, pages(part * PART, (part + 1) * PART), |page| {
                page.location == PageLocation::Swapped
            })
    }

    /// Minutes from `from` on with more refaults than the bound on a working set of `working_set` pages.
    fn minutes_beyond_bound(&self, from: usize, working_set: u64) -> usize {
        let bound = AutoAge::default().max_refaults.of(Bytes(working_set * PAGE_SIZE));
        let minutes = self.minutes.iter().skip(from);
        minutes
            .filter(|(refaults, _)| refaults * PAGE_SIZE > bound.0)
            .count()
    }
}

#[test]
fn age_lies_above_the_periods_of_reaccess() {
    let mut workload = Workload::new(&[Some(20), Some(100), None], AutoAge::default());
    workload.run(60);
    assert_eq!(workload.ages, [None, Some(120)]);
    assert_eq!([0, 1, 2].map(|part| workload.swapped(part)), [0, 0, PART]);
    assert_eq!(workload.minutes_beyond_bound(0, PART * 16 / 10), 0);
    let refaults: u64 = workload.minutes.iter().map(|(refaults, _)| refaults).sum();
    assert_eq!(refaults, 0);
}

#[test]
fn age_follows_refaults_that_it_caused() {
    let mut workload = Workload::new(&[Some(20), Some(100), None], AutoAge::default());
    workload.run(20);
    // The second part slows down: more than the age in force passes between its accesses.
    workload.periods[1] = Some(400);
    workload.run(60);
    assert_eq!(workload.ages.last(), Some(&Some(600)), "{:?}", workload.ages);
    assert_eq!([0, 1, 2].map(|part| workload.swapped(part)), [0, 0, PART]);
    let beyond = workload.minutes_beyond_bound(20, PART);
    assert!(
        (1..=7).contains(&beyond),
        "{beyond} of 60 minutes: {:?}",
        workload.minutes
    );
    // Without accesses, the second part is paged out after the larger age.
    workload.periods[1] = None;
    workload.run(20);
    assert_eq!(workload.swapped(1), PART);
}

#[test]
fn age_that_was_never_seen_before_acting_is_learned_once() {
    // Returns after 900 s are not known when the scheme begins to act.
    let mut workload = Workload::new(&[Some(20), Some(900), None], AutoAge::default());
    workload.run(60);
    assert_eq!(workload.ages.last(), Some(&Some(1800)), "{:?}", workload.ages);
    let beyond = workload.minutes_beyond_bound(5, PART);
    assert!(beyond <= 15, "{beyond} of 55 minutes: {:?}", workload.minutes);
}

#[test]
fn generous_bound_pages_out_more() {
    let auto_age = AutoAge {
        max_refaults: SharePerMinute(1_000_000),
    };
    let mut workload = Workload::new(&[Some(20), Some(600), None], auto_age);
    workload.run(20);
    assert_eq!(workload.ages, [None, Some(30)]);
    let mostly = PART * 8 / 10;
    assert!(workload.swapped(1) > mostly && workload.swapped(2) == PART);
}

#[test]
fn sampling_refuses_automatic_ages_with_one_warning() {
    let mut machine = Machine::new();
    let id = machine.spawn(&[pages(0, 4000)]);
    machine.touch(id, pages(0, 4000));
    let mut scheme = Scheme::new(Action::Pageout);
    scheme.pattern = idle_for(Nanos::ZERO);
    scheme.auto_age = Some(AutoAge::default());
    let mut context = Context::new(Attrs::default(), 7).unwrap();
    context.set_schemes(vec![scheme]).unwrap();
    let mut warnings = Vec::new();
    let mut sink = |event: &Event<'_>| {
        if let Event::Warning { text, .. } = event {
            warnings.push((*text).to_owned());
        }
    };
    run_until(&mut context, &mut machine, &mut sink, Nanos::secs(300), |_, _| {});
    assert!(
        warnings.len() == 1 && warnings[0].contains("an automatic age needs scans"),
        "{warnings:?}"
    );
    assert_eq!(context.schemes()[0].stats().nr_tried, 0);
}
