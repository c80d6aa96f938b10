//! Paging out stops where the contents of real memory do not compress.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{Target, retry, zram};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::TargetId;
use thermo_engine::action::Action;
use thermo_engine::ops::{Applied, Outcome, Request, Skip, TargetRange};
use thermo_units::{Bytes, Permille};

const SIZE: Bytes = Bytes::mib(96);

#[test]
fn child() {
    common::run_if_child();
}

fn pageout(actor: &mut Actor, target: &Target) -> Outcome {
    let range = TargetRange {
        target: TargetId(0),
        range: target.range,
    };
    let request = Request {
        action: Action::Pageout,
        ranges: &[range],
        filters: &[],
        destinations: &[],
    };
    actor.apply(&target.processes(), &request, None).unwrap()
}

fn actor() -> Actor {
    let limits = PageoutLimits {
        swap_floor: Permille(0),
        min_net: Permille(100),
        ..PageoutLimits::default()
    };
    Actor::new(limits, false)
}

fn skipped(applied: &Applied, why: Skip) -> Bytes {
    let found = applied.skipped.iter().find(|(reason, _)| *reason == why);
    found.map_or(Bytes::ZERO, |(_, bytes)| *bytes)
}

/// Pages out a target with the contents that `command` makes, and checks the outcome. Other programs may use
/// zram or page memory out, so it is tried again.
fn check(command: Option<&str>, is_good: impl Fn(&mut Actor, &Target, &Outcome) -> bool) {
    let Some(_zram) = zram() else { return };
    retry(|| {
        let mut target = Target::start(SIZE.0);
        command.into_iter().for_each(|command| target.command(command));
        let mut actor = actor();
        let outcome = pageout(&mut actor, &target);
        if skipped(&outcome.results[0], Skip::NotPermitted) > Bytes::ZERO {
            eprintln!("SKIP: memory of other processes cannot be advised here: {outcome:?}");
            return Ok(());
        }
        match is_good(&mut actor, &target, &outcome) {
            true => Ok(()),
            false => Err(format!("{outcome:?}")),
        }
    });
}

#[test]
fn pageout_stops_after_the_first_mib_that_do_not_compress() {
    check(Some("scramble"), |actor, target, outcome| {
        let [applied] = outcome.results.as_slice() else {
            return false;
        };
        let out = applied.changed.unwrap();
        let is_stopped = skipped(applied, Skip::Incompressible) + out >= Bytes::mib(80);
        let first = (Bytes::mib(16)..=Bytes::mib(48)).contains(&out);
        let note = outcome.notes.iter().any(|note| note.contains("stops for 10 m"));
        let again = pageout(actor, target).results.remove(0);
        is_stopped && first && note && skipped(&again, Skip::Incompressible) == SIZE
    });
}

#[test]
fn pageout_goes_on_where_contents_compress() {
    check(None, |_, _, outcome| {
        let [applied] = outcome.results.as_slice() else {
            return false;
        };
        let all = applied.changed.unwrap() >= Bytes::mib(90);
        all && skipped(applied, Skip::Incompressible) == Bytes::ZERO && outcome.notes.is_empty()
    });
}
