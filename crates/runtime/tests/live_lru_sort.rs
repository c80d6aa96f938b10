//! What LRU sorting does to the kernel's lists, as `/proc/kpageflags` tells it, not as the actor counts it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::fs;
use std::path::Path;

use common::{Target, repeat_until_good};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::TargetId;
use thermo_engine::action::Action;
use thermo_engine::ops::{Request, Skip, TargetRange};
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::lru_gen;
use thermo_kernel::maps;
use thermo_kernel::pagemap::Pagemap;
use thermo_units::{AddrRange, Bytes};

/// So many pages that those of one processor's batches, which are moved later, are few of them.
const ENOUGH: usize = 100;

#[test]
fn child() {
    common::live_as_child();
}

/// Where lists can be told apart. With MGLRU pages are in generations, which the flags do not show.
fn frames() -> Option<PageFrames> {
    if lru_gen::is_on(Path::new("/")) {
        eprintln!("SKIP: this kernel keeps generations (MGLRU), which /proc/kpageflags does not show");
        return None;
    }
    let frames = PageFrames::open(Path::new("/"));
    frames
        .inspect_err(|why| eprintln!("SKIP: /proc/kpageflags cannot be read: {why}"))
        .ok()
}

/// How many pages of `range` are on an active and on an inactive list.
fn lists(frames: &PageFrames, pid: u32, range: AddrRange) -> (usize, usize) {
    let mut pages = Vec::new();
    let pagemap = Pagemap::open(Path::new("/"), pid).unwrap();
    pagemap.read(range, &mut pages).unwrap();
    let flags = pages.iter().filter_map(|page| frames.flags(page.pfn()?).ok());
    // Those on their way to a list, in a batch of some processor, are on none yet.
    let (active, inactive): (Vec<_>, Vec<_>) = flags
        .filter(|flags| flags.is_lru() && !flags.is_unevictable())
        .partition(|flags| flags.is_active());
    (active.len(), inactive.len())
}

/// Does it to `range`; false where that is not allowed.
fn sort(target: &Target, action: Action, range: AddrRange) -> bool {
    let run = TargetRange {
        target: TargetId(0),
        range,
    };
    let request = Request {
        action,
        runs: &[run],
        filters: &[],
    };
    let mut actor = Actor::new(PageoutLimits::default(), false);
    let outcome = actor.apply(&target.processes(), &request, None).unwrap();
    let may = outcome.runs[0].applied > Bytes::ZERO;
    if !may {
        eprintln!("SKIP: {action} does nothing here: {:?}", outcome.runs[0].skipped);
    }
    may
}

/// Moves all of both up, then `cold` down, and looks where they are after each. Pages are not moved one by one but in
/// batches, and others sort too, so most of them have to be where they belong, not all.
fn hot_is_up_and_cold_is_down(target: &Target, hot: AddrRange, cold: AddrRange) {
    let Some(frames) = frames() else { return };
    let seen = |range| lists(&frames, target.pid(), range);
    let mut may = true;
    repeat_until_good(|| {
        let before = (seen(hot), seen(cold));
        may = may && sort(target, Action::LruPrio, hot) && sort(target, Action::LruPrio, cold);
        let up = (seen(hot), seen(cold));
        may = may && sort(target, Action::LruDeprio, cold);
        let after = (seen(hot), seen(cold));
        eprintln!("(active, inactive) of hot and cold: {before:?}, up: {up:?}, sorted: {after:?}");
        if before.0.0 + before.0.1 < ENOUGH || before.1.0 + before.1.1 < ENOUGH {
            eprintln!("SKIP: too little of it is on a list to tell: {before:?}");
            return Ok(());
        }
        let mostly = |(this, other): (usize, usize)| this > 2 * other;
        let swapped = |(active, inactive): (usize, usize)| (inactive, active);
        if !may || (mostly(up.0) && mostly(up.1) && mostly(after.0) && mostly(swapped(after.1))) {
            Ok(())
        } else {
            Err(format!("up: {up:?}, after: {after:?}"))
        }
    });
}

#[test]
fn anonymous_memory_is_sorted() {
    let target = Target::start(32 << 20);
    let middle = target.range.start + Bytes::mib(16);
    let (hot, cold) = (
        AddrRange {
            end: middle,
            ..target.range
        },
        AddrRange {
            start: middle,
            ..target.range
        },
    );
    hot_is_up_and_cold_is_down(&target, hot, cold);
}

/// The kernel marks them as accessed instead of moving them, which is told and not done.
#[test]
fn huge_pages_are_left_where_they_are_and_told() {
    let mut target = Target::start(32 << 20);
    target.collapse();
    let seen = PageFrames::open(Path::new("/")).ok().map(|frames| {
        let pagemap = Pagemap::open(Path::new("/"), target.pid()).unwrap();
        let pfn = pagemap.page(target.range.start).unwrap().pfn();
        pfn.and_then(|pfn| frames.flags(pfn).ok())
            .is_some_and(|flags| flags.is_thp())
    });
    if seen != Some(true) {
        eprintln!("SKIP: there are no huge pages to be had here, or they cannot be seen");
        return;
    }
    let run = TargetRange {
        target: TargetId(0),
        range: target.range,
    };
    let request = Request {
        action: Action::LruPrio,
        runs: &[run],
        filters: &[],
    };
    let mut actor = Actor::new(PageoutLimits::default(), false);
    let outcome = actor.apply(&target.processes(), &request, None).unwrap();
    let huge = outcome.runs[0]
        .skipped
        .iter()
        .find(|(why, _)| *why == Skip::Unadvisable);
    let told = huge.map_or(Bytes::ZERO, |(_, bytes)| *bytes);
    assert!(told >= Bytes::mib(2), "{outcome:?}");
    assert_eq!(told + outcome.runs[0].applied, Bytes::mib(32), "{outcome:?}");
}

#[test]
fn memory_of_files_is_sorted() {
    // A copy of this program: pages that others map too are left alone.
    let folder = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let program = folder.path().join("a-program-of-its-own");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let target = Target::start_as(&program, 4096);
    let mappings = maps::read(Path::new("/"), target.pid()).unwrap();
    let text = mappings
        .iter()
        .filter(|mapping| mapping.name.ends_with("a-program-of-its-own"))
        .max_by_key(|mapping| mapping.range.len())
        .unwrap();
    // The child waits and touches nothing of it. Neither half is larger than its neighbour by more than a page.
    let middle = (text.range.start + Bytes(text.range.len().0 / 2)).align_down();
    let (hot, cold) = (
        AddrRange {
            end: middle,
            ..text.range
        },
        AddrRange {
            start: middle,
            ..text.range
        },
    );
    hot_is_up_and_cold_is_down(&target, hot, cold);
}
