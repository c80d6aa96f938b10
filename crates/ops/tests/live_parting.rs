//! One target swept beside samples of another, on real processes.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;

use common::{Target, live_as_child, repeat_until_good, tracker};
use thermo_core::budget::{CpuShare, Looks};
use thermo_core::ops::{Outcome, Probe, Request, Run};
use thermo_core::scheme::SystemMetric;
use thermo_core::sweep::{Piece, Preparation, Swept};
use thermo_core::{AddrRange, Attrs, Context, Event, Next, Operations, OpsError, TargetId, TargetLayout};
use thermo_ops::targets::{Members, TargetSpec};
use thermo_ops::{Actor, PageoutLimits, Vaddr};
use thermo_sys::clock;

#[test]
fn child() {
    live_as_child();
}

/// Real operations on which target 1 must not be swept.
struct OneDelicate(Vaddr);

impl Operations for OneDelicate {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let mut layouts = self.0.update()?;
        for layout in &mut layouts {
            assert!(
                layout.resident.is_some_and(|bytes| bytes.0 > 16 << 20),
                "{layout:?}"
            );
            layout.is_delicate = layout.id == TargetId(1);
        }
        Ok(layouts)
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        assert!(probes.iter().all(|probe| probe.target == TargetId(1)));
        self.0.prepare_access_checks(probes);
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        self.0.check_accesses(probes);
    }

    fn can_sweep(&self) -> bool {
        self.0.can_sweep()
    }

    fn prepare_round(&mut self, first: bool) -> Preparation {
        self.0.prepare_round(first)
    }

    fn sweep(&mut self, run: &Run, piece: &mut Piece) -> Swept {
        assert_eq!(run.target, TargetId(0));
        self.0.sweep(run, piece)
    }

    fn any_target_left(&mut self) -> bool {
        self.0.any_target_left()
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        self.0.apply(request)
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        self.0.metric(metric)
    }
}

/// Bytes of `found` within `hot`, and outside.
fn right_and_wrong(found: &[AddrRange], hot: AddrRange) -> (u64, u64) {
    found.iter().fold((0, 0), |(right, wrong), range| {
        let both = range.intersection(&hot).map_or(0, |both| both.len().0);
        (right + both, wrong + range.len().0 - both)
    })
}

#[test]
fn a_picture_holds_exact_pages_of_one_and_samples_of_another() {
    let Some(tracker) = tracker() else { return };
    let mut targets = [Target::start(64 << 20), Target::start(64 << 20)];
    let spec = TargetSpec::of_pids(&targets.each_ref().map(Target::pid));
    let members = Members::new(Path::new("/"), spec).unwrap();
    let actor = Actor::new(PageoutLimits::default(), false);
    let mut ops = OneDelicate(Vaddr::new(Path::new("/"), members, Box::new(tracker), actor));
    let mut context = Context::new(Attrs::default(), 1)
        .unwrap()
        .with_budget(CpuShare(1_000_000), Looks::Auto);
    let hot = targets.each_ref().map(|target| {
        let start = target.range.start.0 + (8 << 20);
        AddrRange::new(start, start + (16 << 20))
    });
    // The clock is ours: no round is waited for.
    let mut now = clock::monotonic();
    repeat_until_good(|| {
        let (mut told, mut said) = (0, String::new());
        let mut is_good = false;
        while told < 8 {
            let mut sink = |event: &Event<'_>| {
                let Event::Aggregated { attrs, targets, .. } = event else {
                    return;
                };
                told += 1;
                assert!(!targets[1].swept);
                let found = [0, 1].map(|nth: usize| {
                    let regions = targets[nth].regions.iter();
                    let is_hot = |region: &&thermo_core::Region| {
                        region.nr_accesses * 2 >= attrs.max_nr_accesses() && region.range.overlaps(&hot[nth])
                    };
                    Vec::from_iter(regions.filter(is_hot).map(|region| region.range))
                });
                let (right, wrong) = right_and_wrong(&found[1], hot[1]);
                is_good = targets[0].swept
                    && found[0] == [hot[0]]
                    && right * 10 > hot[1].len().0 * 8
                    && wrong * 4 < right;
                said = format!("{found:x?} should be {hot:x?}");
            };
            let Next::At(next) = context.step(now, &mut ops, &mut sink).unwrap() else {
                panic!("the targets live")
            };
            if next > now {
                targets
                    .iter_mut()
                    .zip(hot)
                    .for_each(|(target, hot)| target.touch(hot));
            }
            now = now.max(next);
        }
        if is_good { Ok(()) } else { Err(said) }
    });
}
