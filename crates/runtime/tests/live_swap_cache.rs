//! A zram device that is full refuses pages: they stay in memory, and do not count as paged out.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;

use common::{Target, retry, swapped, zram};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::TargetId;
use thermo_engine::action::Action;
use thermo_engine::ops::{Request, Skip, TargetRange};
use thermo_kernel::zram as device;
use thermo_units::{Bytes, PAGE_SIZE, Permille};

const SIZE: Bytes = Bytes::mib(48);
const LIMIT: Bytes = Bytes::mib(16);

#[test]
fn child() {
    common::run_if_child();
}

#[test]
fn pages_that_a_full_zram_refused_are_not_paged_out() {
    let Some(zram) = zram() else { return };
    let root = Path::new("/");
    zram.zram().set_mem_limit(root, LIMIT).unwrap();
    let limits = PageoutLimits {
        swap_floor: Permille(0),
        ..PageoutLimits::default()
    };
    // Other programs may use zram or page memory out, so it is tried again.
    retry(|| {
        let mut target = Target::start(SIZE.0);
        target.command("scramble");
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
        let failed_before = device::failed_writes(root).unwrap();
        let outcome = Actor::new(limits, false)
            .apply(&target.processes(), &request, None)
            .unwrap();
        let failed = Bytes((device::failed_writes(root).unwrap() - failed_before) * PAGE_SIZE);
        let applied = &outcome.results[0];
        let of = |why| applied.skipped.iter().find(|(reason, _)| *reason == why);
        if of(Skip::NotPermitted).is_some() {
            eprintln!("SKIP: memory of other processes cannot be advised here: {applied:?}");
            return Ok(());
        }
        let stuck = of(Skip::SwapCache).map_or(Bytes::ZERO, |(_, bytes)| *bytes);
        let (left, changed) = (swapped(target.pid(), target.range), applied.changed.unwrap());
        // Huge pages are refused as one write; the target has none.
        let is_right = stuck == failed && stuck + changed == left && applied.applied == changed;
        let is_said = applied
            .error
            .as_deref()
            .is_some_and(|why| why.contains("swap cache"));
        match is_right && is_said && changed <= LIMIT && stuck >= Bytes::mib(24) {
            true => Ok(()),
            false => Err(format!(
                "{applied:?}: zram refused {failed}, {left} left the process"
            )),
        }
    });
    zram.remove().unwrap();
}
