//! Huge pages made where memory is hot, split where it is cold, with every byte where it was.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;

use common::{Target, repeat_until_good};
use thermo_actions::{Actor, HugeOptions, PageoutLimits};
use thermo_backends::PteTracker;
use thermo_engine::TargetId;
use thermo_engine::action::Action;
use thermo_engine::ops::{Applied, Outcome, Request, TargetRange};
use thermo_kernel::{leftovers, smaps, thp, uname};
use thermo_units::{AddrRange, Bytes};

#[test]
fn child() {
    common::live_as_child();
}

fn actor(options: HugeOptions) -> Actor {
    Actor::new(PageoutLimits::default(), false).with_huge(options)
}

/// A target of so many MiB that may have huge pages, and eyes for them.
fn start(mib: u64) -> Option<(Target, PteTracker)> {
    let root = Path::new("/");
    if thp::read(root).unwrap().is_none() || !uname::read(root).at_least(6, 1) {
        eprintln!("SKIP: this kernel collapses no huge pages on request");
        return None;
    }
    let tracker = PteTracker::new()
        .inspect_err(|why| eprintln!("SKIP: {why}"))
        .ok()?;
    let mut target = Target::start(mib << 20);
    target.tell("allow");
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
        runs: &[run],
        filters: &[],
    };
    let outcome = actor.apply(&target.processes(), &request, Some(tracker)).unwrap();
    (outcome.runs[0].clone(), outcome)
}

/// The huge pages and all of the mappings that `range` touches, and their flags.
fn seen(target: &Target, range: AddrRange) -> (Bytes, Bytes, Vec<String>) {
    let vmas = smaps::read(Path::new("/"), target.pid()).unwrap();
    let inside: Vec<&smaps::Vma> = vmas
        .iter()
        .filter(|vma| vma.mapping.range.intersection(&range).is_some())
        .collect();
    let sum = |of: fn(&smaps::Vma) -> Bytes| inside.iter().map(|vma| of(vma)).sum();
    let flags = inside.iter().map(|vma| vma.vm_flags.clone()).collect();
    (
        sum(|vma| vma.counts.anon_huge_pages),
        sum(|vma| vma.counts.rss),
        flags,
    )
}

fn has_flag(target: &Target, range: AddrRange, flag: &str) -> bool {
    let (_, _, flags) = seen(target, range);
    flags.iter().all(|flags| flags.split(' ').any(|one| one == flag))
}

#[test]
fn huge_pages_go_where_they_are_asked_for_and_move_with_what_is_hot() {
    let Some((mut target, mut tracker)) = start(32) else {
        return;
    };
    let (left, right) = (part(&target, 0, 16), part(&target, 16, 32));
    let mut actor = actor(HugeOptions::default());
    for (hot, cold) in [(left, right), (right, left)] {
        repeat_until_good(|| {
            let (made, _) = apply(&mut actor, &target, &mut tracker, Action::Hugepage, hot);
            let (split, _) = apply(&mut actor, &target, &mut tracker, Action::Nohugepage, cold);
            target.tell("check");
            let huge = seen(&target, target.range).0;
            // The machine may be short of whole huge pages for a while.
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
            runs: &[run(hot)],
            filters: &[],
        };
        // Once more: there is nothing left to change, unless somebody else split one meanwhile.
        repeat_until_good(|| {
            let again = actor.apply(&processes, &request, Some(&mut tracker)).unwrap();
            let changed = again.runs[0].changed;
            if changed == Some(Bytes::ZERO) {
                Ok(())
            } else {
                Err(format!("{changed:?}"))
            }
        });
    }
}

#[test]
fn what_was_never_used_of_a_huge_page_comes_back_when_it_is_split() {
    let Some((mut target, mut tracker)) = start(32) else {
        return;
    };
    if !uname::read(Path::new("/")).at_least(6, 12) {
        eprintln!("SKIP: before 6.12 the kernel frees nothing when it splits a huge page");
        return;
    }
    target.tell("thin");
    let mut actor = actor(HugeOptions::default());
    repeat_until_good(|| {
        apply(&mut actor, &target, &mut tracker, Action::Hugepage, target.range);
        let before = seen(&target, target.range);
        let (split, _) = apply(
            &mut actor,
            &target,
            &mut tracker,
            Action::Nohugepage,
            target.range,
        );
        let after = seen(&target, target.range);
        target.tell("check");
        let freed = before.1.saturating_sub(after.1);
        if before.0 >= Bytes::mib(28) && after.0 == Bytes::ZERO && freed >= Bytes::mib(24) {
            // What stands for zeroes is not memory that is there: a collapse would take all of it again.
            let (again, _) = apply(&mut actor, &target, &mut tracker, Action::Collapse, target.range);
            assert_eq!(seen(&target, target.range).0, Bytes::ZERO, "{again:?}");
            return Ok(());
        }
        // What came back once is gone: the next try begins from memory that is there.
        target.tell("thin");
        Err(format!(
            "{} huge before, {} after, {freed} freed: {split:?}",
            before.0, after.0
        ))
    });
}

#[test]
fn a_collapse_takes_only_what_is_mostly_there() {
    let Some((target, mut tracker)) = start(8) else {
        return;
    };
    let mut actor = actor(HugeOptions::default());
    repeat_until_good(|| {
        let (applied, _) = apply(&mut actor, &target, &mut tracker, Action::Collapse, target.range);
        let huge = seen(&target, target.range).0;
        if huge == Bytes::mib(8) {
            Ok(())
        } else {
            Err(format!("{applied:?}"))
        }
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn flags_are_set_with_consent_alone_noted_and_put_back() {
    let Some((mut target, mut tracker)) = start(16) else {
        return;
    };
    let (half, all) = (part(&target, 4, 8), target.range);
    let plain = HugeOptions::default();
    apply(&mut actor(plain), &target, &mut tracker, Action::Hugepage, half);
    assert!(!has_flag(&target, half, "hg"), "a collapse alone sets none");

    let asked = HugeOptions {
        set_flag: true,
        keep_flags: true,
        ..plain
    };
    let mut why = Vec::new();
    repeat_until_good(|| {
        why = apply(&mut actor(asked), &target, &mut tracker, Action::Hugepage, half)
            .1
            .notes;
        if has_flag(&target, half, "hg") || !why.is_empty() {
            Ok(())
        } else {
            Err("no flag".into())
        }
    });
    if !has_flag(&target, half, "hg") {
        eprintln!("SKIP: no flag can be set here: {why:?}");
        return;
    }
    // It was kept. What forbids it again is put back to it.
    let mut forbidding = actor(plain);
    repeat_until_good(|| {
        let (_, outcome) = apply(&mut forbidding, &target, &mut tracker, Action::Nohugepage, half);
        if has_flag(&target, half, "nh") {
            return Ok(());
        }
        // It rests after a failure; another one begins anew.
        forbidding = actor(plain);
        Err(format!("{:?}", outcome.notes))
    });
    assert_eq!(seen(&target, half).0, Bytes::ZERO);
    let told = || {
        let folder = leftovers::folder(Path::new("/")).unwrap();
        let notes = std::fs::read_dir(folder).into_iter().flatten();
        let mut texts = notes.filter_map(|note| std::fs::read_to_string(note.unwrap().path()).ok());
        texts.any(|text| {
            text.contains("MADV_NOHUGEPAGE") && text.contains(&format!("process {}", target.pid()))
        })
    };
    assert!(
        leftovers::folder(Path::new("/")).is_none() || told(),
        "it is noted"
    );
    drop(forbidding);
    assert!(
        leftovers::folder(Path::new("/")).is_none() || !told(),
        "nothing is left"
    );
    assert!(has_flag(&target, half, "hg"), "{:?}", seen(&target, all).2);
    target.tell("check");
}

/// The notes on what was forbidden to this target.
#[cfg(target_arch = "x86_64")]
fn notes_on(target: &Target) -> Vec<std::path::PathBuf> {
    let folder = leftovers::folder(Path::new("/"));
    let notes = folder.into_iter().flat_map(std::fs::read_dir).flatten();
    let names_it = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.contains("MADV_NOHUGEPAGE") && text.contains(&format!("process {},", target.pid()))
    };
    notes.map(|note| note.unwrap().path()).filter(names_it).collect()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn flags_that_cannot_be_put_back_stay_noted() {
    let Some((mut target, mut tracker)) = start(8) else {
        return;
    };
    let asked = HugeOptions {
        set_flag: true,
        keep_flags: true,
        ..HugeOptions::default()
    };
    let mut tries = 0;
    while !has_flag(&target, target.range, "hg") {
        let (_, outcome) = apply(
            &mut actor(asked),
            &target,
            &mut tracker,
            Action::Hugepage,
            target.range,
        );
        tries += 1;
        if tries == 20 {
            eprintln!("SKIP: no flag can be set here: {:?}", outcome.notes);
            return;
        }
    }
    let mut forbidding = actor(HugeOptions::default());
    repeat_until_good(|| {
        let (_, outcome) = apply(
            &mut forbidding,
            &target,
            &mut tracker,
            Action::Nohugepage,
            target.range,
        );
        if has_flag(&target, target.range, "nh") {
            return Ok(());
        }
        forbidding = actor(HugeOptions::default());
        Err(format!("{:?}", outcome.notes))
    });
    let pid = rustix::process::Pid::from_raw(target.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    repeat_until_good(|| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", target.pid())).unwrap();
        let is_stopped = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'));
        is_stopped.then_some(()).ok_or(stat)
    });
    drop(forbidding);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let notes = notes_on(&target);
    notes.iter().for_each(|note| std::fs::remove_file(note).unwrap());
    assert!(has_flag(&target, target.range, "nh"), "it was stopped");
    assert!(
        leftovers::folder(Path::new("/")).is_none() || !notes.is_empty(),
        "it is noted"
    );
    target.tell("check");
}
