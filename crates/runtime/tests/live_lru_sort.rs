//! The effect of LRU sorting on the lists of the kernel, read from `/proc/kpageflags` instead of the counts
//! of the actor.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::fs;
use std::path::Path;

use common::{Target, retry};
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::TargetId;
use thermo_engine::action::Action;
use thermo_engine::ops::{Request, Skip, TargetRange};
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::lru_gen;
use thermo_kernel::maps;
use thermo_kernel::pagemap::Pagemap;
use thermo_units::{AddrRange, Bytes};

/// Minimum number of pages on a list. The pages in the batch of one CPU, which the kernel moves later, are
/// few of them.
const MIN_PAGES: usize = 100;

#[test]
fn child() {
    common::run_if_child();
}

/// Page flags, if they show the lists. MGLRU has generations, which the flags do not show.
fn frames() -> Option<PageFrames> {
    if lru_gen::is_enabled(Path::new("/")) {
        eprintln!("SKIP: this kernel uses MGLRU, whose generations /proc/kpageflags does not show");
        return None;
    }
    let frames = PageFrames::open(Path::new("/"));
    frames
        .inspect_err(|why| eprintln!("SKIP: /proc/kpageflags cannot be read: {why}"))
        .ok()
}

/// Number of pages of `range` on active and on inactive lists.
fn lists(frames: &PageFrames, pid: u32, range: AddrRange) -> (usize, usize) {
    let mut pages = Vec::new();
    let pagemap = Pagemap::open(Path::new("/"), pid).unwrap();
    pagemap.read(range, &mut pages).unwrap();
    let flags = pages.iter().filter_map(|page| frames.flags(page.pfn()?).ok());
    // Pages in the batch of a CPU are on no list yet.
    let (active, inactive): (Vec<_>, Vec<_>) = flags
        .filter(|flags| flags.is_lru() && !flags.is_unevictable())
        .partition(|flags| flags.is_active());
    (active.len(), inactive.len())
}

/// Applies `action` to `range`; false if it is not permitted.
fn sort(target: &Target, action: Action, range: AddrRange) -> bool {
    let run = TargetRange {
        target: TargetId(0),
        range,
    };
    let request = Request {
        action,
        ranges: &[run],
        filters: &[],
        destinations: &[],
    };
    let mut actor = Actor::new(PageoutLimits::default(), false);
    let outcome = actor.apply(&target.processes(), &request, None).unwrap();
    let is_applied = outcome.results[0].applied > Bytes::ZERO;
    if !is_applied {
        eprintln!(
            "SKIP: {action} has no effect here: {:?}",
            outcome.results[0].skipped
        );
    }
    is_applied
}

/// Moves both ranges up, then `cold` down, and checks the lists after each step. The kernel moves pages in
/// batches, and other programs change the lists, too, so only most of the pages have to be on the expected
/// list.
fn check_sorting(target: &Target, hot: AddrRange, cold: AddrRange) {
    let Some(frames) = frames() else { return };
    let lists_of = |range| lists(&frames, target.pid(), range);
    let mut is_permitted = true;
    retry(|| {
        let before = (lists_of(hot), lists_of(cold));
        is_permitted =
            is_permitted && sort(target, Action::LruPrio, hot) && sort(target, Action::LruPrio, cold);
        let up = (lists_of(hot), lists_of(cold));
        is_permitted = is_permitted && sort(target, Action::LruDeprio, cold);
        let after = (lists_of(hot), lists_of(cold));
        eprintln!("(active, inactive) of hot and cold: {before:?}, up: {up:?}, sorted: {after:?}");
        if before.0.0 + before.0.1 < MIN_PAGES || before.1.0 + before.1.1 < MIN_PAGES {
            eprintln!("SKIP: too few pages are on a list: {before:?}");
            return Ok(());
        }
        let mostly_active = |(active, inactive): (usize, usize)| active > 2 * inactive;
        let mostly_inactive = |(active, inactive): (usize, usize)| inactive > 2 * active;
        let is_sorted =
            mostly_active(up.0) && mostly_active(up.1) && mostly_active(after.0) && mostly_inactive(after.1);
        if !is_permitted || is_sorted {
            Ok(())
        } else {
            Err(format!("up: {up:?}, after: {after:?}"))
        }
    });
}

#[test]
fn lru_sort_moves_anonymous_memory() {
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
    check_sorting(&target, hot, cold);
}

/// The kernel sets the accessed bit of a huge page instead of moving the page, so huge pages are skipped.
#[test]
fn lru_prio_skips_huge_pages() {
    let mut target = Target::start(32 << 20);
    target.collapse();
    let is_huge = PageFrames::open(Path::new("/")).ok().map(|frames| {
        let pagemap = Pagemap::open(Path::new("/"), target.pid()).unwrap();
        let pfn = pagemap.page(target.range.start).unwrap().pfn();
        pfn.and_then(|pfn| frames.flags(pfn).ok())
            .is_some_and(|flags| flags.is_thp())
    });
    if is_huge != Some(true) {
        eprintln!("SKIP: huge pages are not available here, or /proc/kpageflags cannot be read");
        return;
    }
    let run = TargetRange {
        target: TargetId(0),
        range: target.range,
    };
    let request = Request {
        action: Action::LruPrio,
        ranges: &[run],
        filters: &[],
        destinations: &[],
    };
    let mut actor = Actor::new(PageoutLimits::default(), false);
    let outcome = actor.apply(&target.processes(), &request, None).unwrap();
    let huge = outcome.results[0]
        .skipped
        .iter()
        .find(|(why, _)| *why == Skip::Unadvisable);
    let skipped = huge.map_or(Bytes::ZERO, |(_, bytes)| *bytes);
    assert!(skipped >= Bytes::mib(2), "{outcome:?}");
    assert_eq!(
        skipped + outcome.results[0].applied,
        Bytes::mib(32),
        "{outcome:?}"
    );
}

#[test]
fn lru_sort_moves_pages_of_files() {
    // A copy of this program, because shared pages are skipped.
    let folder = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let program = folder.path().join("private-program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let target = Target::start_program(&program, 4096);
    let mappings = maps::read(Path::new("/"), target.pid()).unwrap();
    let text = mappings
        .iter()
        .filter(|mapping| mapping.name.ends_with("private-program"))
        .max_by_key(|mapping| mapping.range.len())
        .unwrap();
    // The child waits and does not access its text. The halves differ by at most one page.
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
    check_sorting(&target, hot, cold);
}
