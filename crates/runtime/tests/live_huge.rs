//! Huge pages are collapsed and split without changing the content of memory.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;

use common::{Target, retry};
use thermo_actions::{Actor, HugeOptions, PageoutLimits};
use thermo_backends::PteTracker;
use thermo_engine::TargetId;
use thermo_engine::action::Action;
use thermo_engine::ops::{Applied, Outcome, Request, TargetRange};
use thermo_kernel::{leftovers, smaps, thp, uname};
use thermo_units::{AddrRange, Bytes};

#[test]
fn child() {
    common::run_if_child();
}

fn actor(options: HugeOptions) -> Actor {
    Actor::new(PageoutLimits::default(), false).with_huge(options)
}

/// A target of `mib` MiB with huge pages allowed, and a page inspector.
fn start(mib: u64) -> Option<(Target, PteTracker)> {
    let root = Path::new("/");
    if thp::read(root).unwrap().is_none() || !uname::read(root).at_least(6, 1) {
        eprintln!("SKIP: this kernel has no MADV_COLLAPSE");
        return None;
    }
    let tracker = PteTracker::new()
        .inspect_err(|why| eprintln!("SKIP: {why}"))
        .ok()?;
    let mut target = Target::start(mib << 20);
    target.command("allow");
    Some((target, tracker))
}

fn part(target: &Target, from: u64, to: u64) -> AddrRange {
    let start = target.range.start;
    AddrRange {
        start: start + Bytes::mib(from),
        end: start + Bytes::mib(to),
    }
}

fn apply(
    actor: &mut Actor,
    target: &Target,
    tracker: &mut PteTracker,
    action: Action,
    range: AddrRange,
) -> (Applied, Outcome) {
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
    let outcome = actor.apply(&target.processes(), &request, Some(tracker)).unwrap();
    (outcome.results[0].clone(), outcome)
}

/// Bytes in huge pages, resident bytes and flags of the mappings that overlap `range`.
fn mapping_state(target: &Target, range: AddrRange) -> (Bytes, Bytes, Vec<String>) {
    let vmas = smaps::read(Path::new("/"), target.pid()).unwrap();
    let inside: Vec<&smaps::Vma> = vmas
        .iter()
        .filter(|vma| vma.mapping.range.intersection(&range).is_some())
        .collect();
    let sum = |field: fn(&smaps::Vma) -> Bytes| inside.iter().map(|vma| field(vma)).sum();
    let flags = inside.iter().map(|vma| vma.vm_flags.clone()).collect();
    (
        sum(|vma| vma.counts.anon_huge_pages),
        sum(|vma| vma.counts.rss),
        flags,
    )
}

fn has_flag(target: &Target, range: AddrRange, flag: &str) -> bool {
    let (_, _, flags) = mapping_state(target, range);
    flags.iter().all(|flags| flags.split(' ').any(|one| one == flag))
}

#[test]
fn huge_pages_follow_hot_memory() {
    let Some((mut target, mut tracker)) = start(32) else {
        return;
    };
    let (left, right) = (part(&target, 0, 16), part(&target, 16, 32));
    let mut actor = actor(HugeOptions::default());
    for (hot, cold) in [(left, right), (right, left)] {
        retry(|| {
            let (made, _) = apply(&mut actor, &target, &mut tracker, Action::Hugepage, hot);
            let (split, _) = apply(&mut actor, &target, &mut tracker, Action::Nohugepage, cold);
            target.command("check");
            let huge = mapping_state(&target, target.range).0;
            // The machine may lack free huge pages for a while.
            if huge == Bytes::mib(16) && made.applied == Bytes::mib(16) && split.applied == Bytes::mib(16) {
                return Ok(());
            }
            Err(format!("{huge} huge, {made:?}, {split:?}"))
        });
        let run = |range| TargetRange {
            target: TargetId(0),
            range,
        };
        let processes = target.processes();
        let request = Request {
            action: Action::Hugepage,
            ranges: &[run(hot)],
            filters: &[],
            destinations: &[],
        };
        // A second request changes nothing, unless another program split a huge page meanwhile.
        retry(|| {
            let again = actor.apply(&processes, &request, Some(&mut tracker)).unwrap();
            let changed = again.results[0].changed;
            if changed == Some(Bytes::ZERO) {
                Ok(())
            } else {
                Err(format!("{changed:?}"))
            }
        });
    }
}

#[test]
fn split_frees_zero_filled_pages() {
    let Some((mut target, mut tracker)) = start(32) else {
        return;
    };
    if !uname::read(Path::new("/")).at_least(6, 12) {
        eprintln!("SKIP: before 6.12 the kernel frees nothing when it splits a huge page");
        return;
    }
    target.command("thin");
    let mut actor = actor(HugeOptions::default());
    retry(|| {
        apply(&mut actor, &target, &mut tracker, Action::Hugepage, target.range);
        let before = mapping_state(&target, target.range);
        let (split, _) = apply(
            &mut actor,
            &target,
            &mut tracker,
            Action::Nohugepage,
            target.range,
        );
        let after = mapping_state(&target, target.range);
        target.command("check");
        let freed = before.1.saturating_sub(after.1);
        if before.0 >= Bytes::mib(28) && after.0 == Bytes::ZERO && freed >= Bytes::mib(24) {
            // Zero pages do not count as resident: otherwise a collapse would allocate all of the memory
            // again.
            let (again, _) = apply(&mut actor, &target, &mut tracker, Action::Collapse, target.range);
            assert_eq!(mapping_state(&target, target.range).0, Bytes::ZERO, "{again:?}");
            return Ok(());
        }
        // Makes the memory resident again for the next attempt.
        target.command("thin");
        Err(format!(
            "{} huge before, {} after, {freed} freed: {split:?}",
            before.0, after.0
        ))
    });
}

#[test]
fn collapse_makes_resident_memory_huge() {
    let Some((target, mut tracker)) = start(8) else {
        return;
    };
    let mut actor = actor(HugeOptions::default());
    retry(|| {
        let (applied, _) = apply(&mut actor, &target, &mut tracker, Action::Collapse, target.range);
        let huge = mapping_state(&target, target.range).0;
        if huge == Bytes::mib(8) {
            Ok(())
        } else {
            Err(format!("{applied:?}"))
        }
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn flags_need_consent_and_are_restored() {
    let Some((mut target, mut tracker)) = start(16) else {
        return;
    };
    let (half, all) = (part(&target, 4, 8), target.range);
    let plain = HugeOptions::default();
    apply(&mut actor(plain), &target, &mut tracker, Action::Hugepage, half);
    assert!(!has_flag(&target, half, "hg"), "a collapse sets no flag");

    let with_flags = HugeOptions {
        set_flag: true,
        keep_flags: true,
        ..plain
    };
    let mut notes = Vec::new();
    retry(|| {
        notes = apply(
            &mut actor(with_flags),
            &target,
            &mut tracker,
            Action::Hugepage,
            half,
        )
        .1
        .notes;
        if has_flag(&target, half, "hg") || !notes.is_empty() {
            Ok(())
        } else {
            Err("no flag".into())
        }
    });
    if !has_flag(&target, half, "hg") {
        eprintln!("SKIP: flags cannot be set here: {notes:?}");
        return;
    }
    // `keep_flags` kept the flag. `nohugepage` then sets another flag, and restores the former one at the
    // end.
    let mut splitter = actor(plain);
    retry(|| {
        let (_, outcome) = apply(&mut splitter, &target, &mut tracker, Action::Nohugepage, half);
        if has_flag(&target, half, "nh") {
            return Ok(());
        }
        // An actor pauses after a failure; a new actor starts at once.
        splitter = actor(plain);
        Err(format!("{:?}", outcome.notes))
    });
    assert_eq!(mapping_state(&target, half).0, Bytes::ZERO);
    let is_recorded = || !notes_on(&target).is_empty();
    assert!(
        leftovers::folder(Path::new("/")).is_none() || is_recorded(),
        "the flag is recorded as a leftover"
    );
    drop(splitter);
    assert!(
        leftovers::folder(Path::new("/")).is_none() || !is_recorded(),
        "the record is removed"
    );
    assert!(
        has_flag(&target, half, "hg"),
        "{:?}",
        mapping_state(&target, all).2
    );
    target.command("check");
}

/// The leftover records about the flags of this target.
#[cfg(target_arch = "x86_64")]
fn notes_on(target: &Target) -> Vec<std::path::PathBuf> {
    let folder = leftovers::folder(Path::new("/"));
    let notes = folder.into_iter().flat_map(std::fs::read_dir).flatten();
    let is_about_target = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.contains("MADV_NOHUGEPAGE") && text.contains(&format!("process {},", target.pid()))
    };
    notes
        .map(|note| note.unwrap().path())
        .filter(is_about_target)
        .collect()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn unrestored_flags_stay_recorded() {
    let Some((mut target, mut tracker)) = start(8) else {
        return;
    };
    let with_flags = HugeOptions {
        set_flag: true,
        keep_flags: true,
        ..HugeOptions::default()
    };
    let mut attempts = 0;
    while !has_flag(&target, target.range, "hg") {
        let (_, outcome) = apply(
            &mut actor(with_flags),
            &target,
            &mut tracker,
            Action::Hugepage,
            target.range,
        );
        attempts += 1;
        if attempts == 20 {
            eprintln!("SKIP: flags cannot be set here: {:?}", outcome.notes);
            return;
        }
    }
    let mut splitter = actor(HugeOptions::default());
    retry(|| {
        let (_, outcome) = apply(
            &mut splitter,
            &target,
            &mut tracker,
            Action::Nohugepage,
            target.range,
        );
        if has_flag(&target, target.range, "nh") {
            return Ok(());
        }
        splitter = actor(HugeOptions::default());
        Err(format!("{:?}", outcome.notes))
    });
    let pid = rustix::process::Pid::from_raw(target.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    retry(|| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", target.pid())).unwrap();
        let is_stopped = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'));
        is_stopped.then_some(()).ok_or(stat)
    });
    drop(splitter);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let notes = notes_on(&target);
    notes.iter().for_each(|note| std::fs::remove_file(note).unwrap());
    assert!(has_flag(&target, target.range, "nh"), "the target was stopped");
    assert!(
        leftovers::folder(Path::new("/")).is_none() || !notes.is_empty(),
        "the flag is recorded as a leftover"
    );
    target.command("check");
}
