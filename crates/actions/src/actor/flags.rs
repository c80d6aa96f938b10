//! Sets the huge-page flags of mappings by `madvise()` calls injected into targets, and restores them.
//!
//! A flag is set on whole units, adjacent units in one call. It is not set where it has no effect, e.g.
//! `nohugepage` on a mapping where the kernel makes no huge pages anyway (mode `madvise` without a flag, or
//! `never`). Each call can split a mapping in three, so no call is made that could bring a target above half
//! of `vm.max_map_count`.
//!
//! No advice removes a flag. A flag set on a mapping without one is replaced by the flag that means the same
//! in the machine's mode: `MADV_HUGEPAGE` in mode `always`, `MADV_NOHUGEPAGE` otherwise.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_inject::{Call, HugeFlag, InjectError, Injector, live_thread};
use thermo_kernel::leftovers::{self, Leftover, Note};
use thermo_kernel::pidfd::PidFd;
use thermo_kernel::{FileError, clock, smaps, thp};
use thermo_targets::Process;
use thermo_units::{AddrRange, Nanos};

use super::flag_journal::{Change, FlagJournal, Holder};
use super::vma_flags::{FlaggedRanges, flag_to_replace, ranges_with_flag};

/// Maximum number of calls each time a scheme is applied to a target: each call stops one of its threads
/// briefly.
const MAX_CALLS: usize = 16;
/// After a failed call, a target is skipped for this long.
const BACKOFF: Nanos = Nanos::secs(10);
/// Flags that were read are trusted for this long: reading them takes tens of milliseconds per GiB.
const CHECK_VALID: Nanos = Nanos::secs(30);
/// Time limit for restoring all flags.
const RESTORE_LIMIT: Nanos = Nanos::secs(10);

/// Sets and restores flags.
#[derive(Debug)]
pub(super) struct Flags {
    root: PathBuf,
    injector: Injector,
    journal: FlagJournal,
    /// Targets for which the journal is trusted to match their mappings, until when.
    checked: BTreeMap<TargetId, Nanos>,
    /// Units on which a flag has no effect, until when that is trusted.
    needless: BTreeMap<TargetId, (Nanos, BTreeMap<u64, HugeFlag>)>,
    /// Targets that are skipped after a failure, until when.
    backoff: BTreeMap<TargetId, Nanos>,
    note: Option<Note>,
    /// Whether the warning that no note can be written was given.
    warned: bool,
    /// Whether flags stay set when this is dropped.
    pub(super) keep: bool,
    /// Warnings for the user.
    notes: Vec<String>,
}

impl Flags {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            injector: Injector::new(root),
            journal: FlagJournal::default(),
            checked: BTreeMap::new(),
            needless: BTreeMap::new(),
            backoff: BTreeMap::new(),
            note: None,
            warned: false,
            keep: false,
            notes: Vec::new(),
        }
    }

    /// Returns and clears the warnings.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Whether nothing has to be done for `flag` on `unit`: it is set, has no effect, or cannot be set for
    /// now.
    pub(super) fn is_settled(&self, process: &Process, unit: AddrRange, flag: HugeFlag) -> bool {
        let now = clock::monotonic();
        let until = |until: &Nanos| now < *until;
        let needless = self.needless.get(&process.id).filter(|(until, _)| now < *until);
        let is_checked = self.checked.get(&process.id).is_some_and(until);
        is_checked && self.journal.flag(process.id, unit.start.0) == Some(flag)
            || self.backoff.get(&process.id).is_some_and(until)
            || needless.is_some_and(|(_, units)| units.get(&unit.start.0) == Some(&flag))
    }

    /// Allows huge pages again where we forbade them: the kernel would refuse to collapse.
    pub(super) fn allow_again(&mut self, process: &Process, units: &[AddrRange]) {
        let ours =
            |unit: &&AddrRange| self.journal.flag(process.id, unit.start.0) == Some(HugeFlag::NoHugePage);
        let ours: Vec<AddrRange> = units.iter().filter(ours).copied().collect();
        if !ours.is_empty() {
            self.change(process, &ours, HugeFlag::HugePage, false);
        }
    }

    /// Sets `flag` on `units` that have the opposite flag; with `everywhere`, on all units without `flag`.
    pub(super) fn change(
        &mut self,
        process: &Process,
        units: &[AddrRange],
        flag: HugeFlag,
        everywhere: bool,
    ) {
        let open: Vec<AddrRange> = units
            .iter()
            .filter(|unit| !self.is_settled(process, **unit, flag))
            .copied()
            .collect();
        if open.is_empty() {
            return;
        }
        // The process has ended, or nothing is known of its flags.
        let Some(vmas) = mappings(&self.root, process.pid) else {
            return;
        };
        let changes = self.changes(process, &vmas, &open, (flag, everywhere));
        let mut calls = merge_units(&changes);
        // The number of calls is limited, so the largest ranges go first.
        calls.sort_by_key(|call| std::cmp::Reverse(call.len()));
        let max_calls = max_calls_for(&self.root, vmas.len());
        if calls.len() > max_calls && max_calls < MAX_CALLS {
            self.notes.push(format!(
                "process {} has {} mappings: huge-page flags are set only up to half of vm.max_map_count",
                process.pid,
                vmas.len()
            ));
        }
        for range in calls.into_iter().take(MAX_CALLS.min(max_calls)) {
            if !self.call(process, Call { range, flag }, &changes) {
                break;
            }
        }
        self.save_note();
    }

    /// The units of `open` on which the flag must be set. Also updates the caches and the journal from
    /// `vmas`.
    fn changes(
        &mut self,
        process: &Process,
        vmas: &[smaps::Vma],
        open: &[AddrRange],
        (flag, everywhere): (HugeFlag, bool),
    ) -> Vec<Change> {
        let now = clock::monotonic();
        let until = now.saturating_add(CHECK_VALID);
        // Expired entries of targets that have ended are dropped too.
        self.checked.retain(|_, until| now < *until);
        self.backoff.retain(|_, until| now < *until);
        self.needless.retain(|_, (until, _)| now < *until);
        self.journal.forget_lost(process.id, &FlaggedRanges::new(vmas));
        self.checked.insert(process.id, until);
        let needless = self.needless.entry(process.id).or_default();
        if needless.0 <= now {
            *needless = (until, BTreeMap::new());
        }
        let mut changes = Vec::new();
        for unit in open {
            if self.journal.flag(process.id, unit.start.0) == Some(flag) {
                continue;
            }
            match flag_to_replace(vmas, *unit, flag, everywhere) {
                Some(before) => changes.push(Change { unit: *unit, before }),
                None => {
                    needless.1.insert(unit.start.0, flag);
                }
            }
        }
        changes
    }

    /// Makes one call in the target and records its changes. False: further calls would fail too.
    fn call(&mut self, process: &Process, call: Call, changes: &[Change]) -> bool {
        // Recorded before the call: this process may be killed in between.
        let within = changes
            .iter()
            .filter(|change| call.range.contains(change.unit.start));
        let pid = process.pid;
        // `is_alive()` comes after the read, so the holder cannot be a later process with the same pid.
        let Some(holder) = Holder::read(&self.root, pid).filter(|_| process.is_alive()) else {
            return false;
        };
        self.journal.forget_ended(&self.root);
        let before = self.journal.clone_of(process.id);
        for change in within {
            self.journal.note(process.id, holder, *change, call.flag);
        }
        self.save_note();
        let why = match self.injector.madvise(&process.pidfd, pid, call) {
            Ok(done) if done.errno == 0 => return true,
            // The target may still make the call.
            Err(error @ InjectError::Unfinished { .. }) => {
                self.notes.push(error.to_string());
                self.back_off(process.id);
                return false;
            }
            Ok(done) => format!(
                "{} on {} of process {pid} failed: {}",
                call.flag.name(),
                call.range,
                std::io::Error::from_raw_os_error(done.errno)
            ),
            Err(error) => error.to_string(),
        };
        self.journal.restore(process.id, before);
        self.notes
            .push(format!("{why}. Huge pages are still collapsed and split"));
        self.back_off(process.id);
        false
    }

    fn back_off(&mut self, target: TargetId) {
        self.backoff
            .insert(target, clock::monotonic().saturating_add(BACKOFF));
    }

    /// Writes the note of leftovers, unless flags are meant to stay.
    fn save_note(&mut self) {
        if self.keep {
            return;
        }
        let Some(folder) = leftovers::folder(&self.root) else {
            self.warn("XDG_RUNTIME_DIR is not set");
            return;
        };
        if let Err(error) = self.write_note(&folder) {
            self.warn(&error.to_string());
        }
    }

    fn write_note(&mut self, folder: &Path) -> Result<(), FileError> {
        let note = match self.note.take() {
            Some(note) => note,
            None => Note::new(&self.root, folder, "huge-page-flags")?,
        };
        self.note.insert(note).write(&self.journal.leftovers())
    }

    /// Warns once that no note can be written. Flags are set all the same.
    fn warn(&mut self, why: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            self.notes.push(format!(
                "cannot record which huge-page flags are set: {why}. If thermo is killed, the flags stay set until \
                 their processes end, and `thermo doctor --leftovers` cannot list them"
            ));
        }
    }

    /// Restores every flag that we set and that is still set, where possible. Flags that stay are noted.
    fn restore_all(&mut self) {
        let mode = thp::read(&self.root).ok().flatten();
        let none = match mode {
            Some(thp::ThpMode::Always) => HugeFlag::HugePage,
            _ => HugeFlag::NoHugePage,
        };
        let deadline = clock::monotonic().saturating_add(RESTORE_LIMIT);
        let (mut why, mut leftovers) = (None, Vec::new());
        self.journal.forget_ended(&self.root);
        for (holder, calls) in self.journal.restore_calls(none) {
            for call in still_due(&self.root, &holder, &calls) {
                let failed = if clock::monotonic() > deadline {
                    Some(format!("the time limit of {RESTORE_LIMIT} was reached"))
                } else {
                    self.restore_one(&holder, call)
                };
                why = why.or(failed);
            }
            let failed = still_due(&self.root, &holder, &calls).into_iter();
            leftovers.extend(failed.map(|call| holder.leftover(call.flag.opposite(), call.range)));
        }
        if !leftovers.is_empty() {
            self.report_leftovers(why, &leftovers);
        }
    }

    /// Makes one call; returns the reason if it failed.
    fn restore_one(&mut self, holder: &Holder, call: Call) -> Option<String> {
        // The descriptor holds the process that has the number now, which is the holder if that is alive.
        let pidfd = match PidFd::open(holder.pid()) {
            Ok(pidfd) if holder.is_alive(&self.root) => pidfd,
            Ok(_) => return None,
            Err(error) => return Some(error.to_string()),
        };
        match self.injector.madvise(&pidfd, holder.pid(), call) {
            Ok(done) if done.errno == 0 => None,
            Ok(done) => Some(std::io::Error::from_raw_os_error(done.errno).to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn report_leftovers(&mut self, why: Option<String>, leftovers: &[Leftover]) {
        let why = why.unwrap_or_else(|| "another program set them again".to_owned());
        thermo_kernel::message!(
            "thermo: some huge-page flags could not be restored: {why}. They end with their processes; `thermo doctor \
             --leftovers` lists them"
        );
        if let Some(note) = self.note.take() {
            // If this fails, the previous, longer list remains.
            let _ = note.write(leftovers);
            note.keep();
        }
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        if !self.keep {
            self.restore_all();
        }
    }
}

/// The mappings of a process with their flags; `None` when the process has ended, or where they cannot be
/// read.
fn mappings(root: &Path, pid: u32) -> Option<Vec<smaps::Vma>> {
    smaps::read(root, live_thread(root, pid)?).ok()
}

/// The parts of the restoring `calls` that are still due: `holder` is alive and has the flag that we set. All
/// of them where its flags cannot be read.
fn still_due(root: &Path, holder: &Holder, calls: &[Call]) -> Vec<Call> {
    if calls.is_empty() {
        return Vec::new();
    }
    let vmas = mappings(root, holder.pid());
    // Checked after the read, so that `vmas` cannot be those of a later process with the same pid.
    if !holder.is_alive(root) {
        return Vec::new();
    }
    let Some(vmas) = vmas else {
        return calls.to_vec();
    };
    let due = |call: &Call| {
        let flag = call.flag;
        let ranges = ranges_with_flag(&vmas, call.range, flag.opposite()).into_iter();
        ranges.map(move |range| Call { range, flag })
    };
    calls.iter().flat_map(due).collect()
}

/// One range per run of adjacent units.
fn merge_units(changes: &[Change]) -> Vec<AddrRange> {
    let mut calls = Vec::new();
    for change in changes {
        change.unit.coalesce_into(&mut calls);
    }
    calls
}

/// The number of calls that a target with this many mappings may get.
fn max_calls_for(root: &Path, mappings: usize) -> usize {
    const DEFAULT: usize = 65_530;
    let text = fs::read_to_string(root.join("proc/sys/vm/max_map_count")).unwrap_or_default();
    let max_map_count: usize = text.trim().parse().unwrap_or(DEFAULT);
    (max_map_count / 2).saturating_sub(mappings) / 2
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn unit(n: u64) -> AddrRange {
        AddrRange::new(n << 21, (n + 1) << 21)
    }

    #[test]
    fn unwritable_note_is_reported_once() {
        let root = tempfile::tempdir().unwrap();
        if !leftovers::folder(root.path()).is_some_and(|folder| folder.starts_with(root.path())) {
            println!("SKIP: without root, the notes are outside the folder of this test");
            return;
        }
        std::fs::write(root.path().join("run"), "no folder").unwrap();
        let mut flags = Flags::new(root.path());
        flags.save_note();
        flags.save_note();
        let notes = flags.take_notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("thermocline"), "{notes:?}");
        flags.save_note();
        assert!(flags.take_notes().is_empty());
    }

    #[test]
    fn every_call_is_due_where_flags_cannot_be_read() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        std::fs::write(
            process.join("stat"),
            "7 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0",
        )
        .unwrap();
        let holder = Holder::read(root.path(), 7).unwrap();
        let calls = [Call {
            range: unit(1),
            flag: HugeFlag::NoHugePage,
        }];
        assert_eq!(still_due(root.path(), &holder, &calls), calls);
        std::fs::remove_dir_all(&process).unwrap();
        assert_eq!(still_due(root.path(), &holder, &calls), [], "it has ended");
    }

    #[test]
    fn adjacent_units_share_a_call() {
        let change = |n| Change {
            unit: unit(n),
            before: None,
        };
        assert_eq!(
            merge_units(&[change(1), change(2), change(4)]),
            [AddrRange::new(1 << 21, 3 << 21), unit(4)]
        );
        let nowhere = Path::new("/nowhere");
        assert_eq!(max_calls_for(nowhere, 32_755), 5);
        assert_eq!(max_calls_for(nowhere, 40_000), 0);
    }
}
