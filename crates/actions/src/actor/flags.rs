//! The mappings' own huge-page flags: set by calls that targets are made to make, as few as will do, and put back.
//!
//! A flag is set for whole units, neighbours in one call. It is not set where it changes nothing: `nohugepage` is
//! asked for in a mapping that the kernel would make no huge pages in anyway (mode `madvise` and no flag, or `never`).
//! Each call can split a mapping in three, so none is made that could bring a target over half of `vm.max_map_count`.
//!
//! The kernel has no advice that leads back to "no flag". What we set on a mapping without one is put back to the flag
//! that means the same in the machine's mode: huge pages where it is `always`, none otherwise.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_inject::{Call, HugeFlag, InjectError, Injector, live_thread};
use thermo_kernel::leftovers::{self, Leftover, Note};
use thermo_kernel::{FileError, clock, smaps, thp};
use thermo_targets::Process;
use thermo_units::{AddrRange, Nanos};

use super::flag_journal::{Change, FlagJournal, Holder};
use super::flag_needs::{Flagged, having, needed};

/// Calls in one application of a scheme to one target: each takes a moment of one of its threads.
const MOST_CALLS: usize = 16;
/// A target whose flags could not be set is left alone for so long.
const REST: Nanos = Nanos::secs(10);
/// What was read of a target's flags holds for so long: reading them takes tens of milliseconds a GiB.
const HOLDS: Nanos = Nanos::secs(30);
/// How long putting back may take.
const TO_PUT_BACK: Nanos = Nanos::secs(10);

/// The flags.
#[derive(Debug)]
pub(super) struct Flags {
    root: PathBuf,
    injector: Injector,
    journal: FlagJournal,
    /// Until when what the book says of a target is taken for what its mappings have.
    checked: BTreeMap<TargetId, Nanos>,
    /// Units that need no flag, until when that holds.
    needless: BTreeMap<TargetId, (Nanos, BTreeMap<u64, HugeFlag>)>,
    /// Targets that are left alone, until when.
    resting: BTreeMap<TargetId, Nanos>,
    note: Option<Note>,
    /// Whether it was said that no note can be kept.
    warned: bool,
    /// Whether the flags stay when this is dropped.
    pub(super) keep: bool,
    /// What could not be done.
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
            resting: BTreeMap::new(),
            note: None,
            warned: false,
            keep: false,
            notes: Vec::new(),
        }
    }

    /// The sentences on what could not be done since this was asked last.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Whether nothing is to be done for `unit` to have `flag`: it has, needs it not, or cannot get it for now.
    pub(super) fn is_settled(&self, process: &Process, unit: AddrRange, flag: HugeFlag) -> bool {
        let now = clock::monotonic();
        let until = |until: &Nanos| now < *until;
        let needless = self.needless.get(&process.id).filter(|(until, _)| now < *until);
        let is_checked = self.checked.get(&process.id).is_some_and(until);
        is_checked && self.journal.flag(process.id, unit.start.0) == Some(flag)
            || self.resting.get(&process.id).is_some_and(until)
            || needless.is_some_and(|(_, units)| units.get(&unit.start.0) == Some(&flag))
    }

    /// Where we forbade huge pages, allows them again: a collapse would be refused.
    pub(super) fn take_back(&mut self, process: &Process, units: &[AddrRange]) {
        let ours =
            |unit: &&AddrRange| self.journal.flag(process.id, unit.start.0) == Some(HugeFlag::NoHugePage);
        let ours: Vec<AddrRange> = units.iter().filter(ours).copied().collect();
        if !ours.is_empty() {
            self.change(process, &ours, HugeFlag::HugePage, false);
        }
    }

    /// Sets `flag` on `units` that have the opposite one, or with `everywhere` on all that do not have it.
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
        // It ended: nothing is to be done.
        let Some(vmas) = mappings(&self.root, process.pid) else {
            return;
        };
        let changes = self.changes(process, &vmas, &open, (flag, everywhere));
        let mut calls = in_calls(&changes);
        // The largest do the most for a call.
        calls.sort_by_key(|call| std::cmp::Reverse(call.len()));
        let room = room_for_calls(&self.root, vmas.len());
        if calls.len() > room && room < MOST_CALLS {
            self.notes.push(format!(
                "process {} has {} mappings: flags are set only up to half of vm.max_map_count",
                process.pid,
                vmas.len()
            ));
        }
        for range in calls.into_iter().take(MOST_CALLS.min(room)) {
            if !self.call(process, Call { range, flag }, &changes) {
                break;
            }
        }
        self.write_down();
    }

    /// What of `open` is to be changed to the flag that is asked for, as the mappings are now; and learns from them.
    fn changes(
        &mut self,
        process: &Process,
        vmas: &[smaps::Vma],
        open: &[AddrRange],
        (flag, everywhere): (HugeFlag, bool),
    ) -> Vec<Change> {
        let now = clock::monotonic();
        let until = now.saturating_add(HOLDS);
        // Also of targets that have ended since.
        self.checked.retain(|_, until| now < *until);
        self.resting.retain(|_, until| now < *until);
        self.needless.retain(|_, (until, _)| now < *until);
        self.journal.forget_lost(process.id, &Flagged::of(vmas));
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
            match needed(vmas, *unit, flag, everywhere) {
                Some(before) => changes.push(Change { unit: *unit, before }),
                None => {
                    needless.1.insert(unit.start.0, flag);
                }
            }
        }
        changes
    }

    /// Has it make one call, and notes what that changed. False when no further one is worth trying now.
    fn call(&mut self, process: &Process, call: Call, changes: &[Change]) -> bool {
        // Noted before it is done: we may be killed in between.
        let within = changes
            .iter()
            .filter(|change| call.range.contains(change.unit.start));
        let pid = process.pid;
        // Asked in this order, the holder is the process that is meant, and none that has its number since.
        let Some(holder) = Holder::of(&self.root, pid).filter(|_| process.is_alive()) else {
            return false;
        };
        self.journal.forget_ended(&self.root);
        let before = self.journal.clone_of(process.id);
        for change in within {
            self.journal.note(process.id, holder, *change, call.flag);
        }
        self.write_down();
        let why = match self.injector.madvise(pid, call) {
            Ok(done) if done.errno == 0 => return true,
            // It may be made yet.
            Err(error @ InjectError::Unfinished { .. }) => {
                self.notes.push(error.to_string());
                self.resting
                    .insert(process.id, clock::monotonic().saturating_add(REST));
                return false;
            }
            Ok(done) => format!(
                "{} on {} of process {pid} was answered with {}",
                call.flag.name(),
                call.range,
                std::io::Error::from_raw_os_error(done.errno)
            ),
            Err(error) => error.to_string(),
        };
        self.journal.restore(process.id, before);
        self.notes
            .push(format!("{why}. Huge pages are collapsed and split all the same"));
        self.resting
            .insert(process.id, clock::monotonic().saturating_add(REST));
        false
    }

    fn write_down(&mut self) {
        if self.keep {
            return;
        }
        let Some(folder) = leftovers::folder(&self.root) else {
            self.warn("there is no folder for it (XDG_RUNTIME_DIR)");
            return;
        };
        if let Err(error) = self.write_into(&folder) {
            self.warn(&error.to_string());
        }
    }

    fn write_into(&mut self, folder: &Path) -> Result<(), FileError> {
        let note = match self.note.take() {
            Some(note) => note,
            None => Note::new(&self.root, folder, "huge-page-flags")?,
        };
        self.note.insert(note).say(&self.journal.leftovers())
    }

    /// Says once that no note is kept: a machine without a place for notes is no reason not to act.
    fn warn(&mut self, why: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            self.notes.push(format!(
                "which huge-page flags are set cannot be noted down: {why}. If thermo is killed, they stay set \
                 until their processes end, and `thermo doctor --leftovers` cannot tell of them"
            ));
        }
    }

    /// Puts back every flag that we set and that is still there, as far as there is a way. What stays is noted.
    fn put_back(&mut self) {
        let mode = thp::read(&self.root).ok().flatten();
        let none = match mode {
            Some(thp::ThpMode::Always) => HugeFlag::HugePage,
            _ => HugeFlag::NoHugePage,
        };
        let deadline = clock::monotonic().saturating_add(TO_PUT_BACK);
        let (mut why, mut stayed) = (None, Vec::new());
        self.journal.forget_ended(&self.root);
        for (holder, calls) in self.journal.to_put_back(none) {
            for call in still_due(&self.root, &holder, &calls) {
                let failed = if clock::monotonic() > deadline {
                    Some(format!("{TO_PUT_BACK} have passed"))
                } else {
                    self.put_back_one(&holder, call)
                };
                why = why.or(failed);
            }
            let left = still_due(&self.root, &holder, &calls).into_iter();
            stayed.extend(left.map(|call| holder.leftover(call.flag.opposite(), call.range)));
        }
        if !stayed.is_empty() {
            self.tell_what_stayed(why, &stayed);
        }
    }

    /// Makes one call; why it was not made, if so.
    fn put_back_one(&mut self, holder: &Holder, call: Call) -> Option<String> {
        match self.injector.madvise(holder.pid(), call) {
            Ok(done) if done.errno == 0 => None,
            Ok(done) => Some(std::io::Error::from_raw_os_error(done.errno).to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn tell_what_stayed(&mut self, why: Option<String>, stayed: &[Leftover]) {
        let why = why.unwrap_or_else(|| "somebody set them anew".to_owned());
        eprintln!(
            "thermo: some huge-page flags stay as they were set: {why}. They end with their processes; `thermo doctor \
             --leftovers` names them"
        );
        if let Some(note) = self.note.take() {
            // Where it cannot be written, the last list stands, which has more.
            let _ = note.say(stayed);
            note.stay();
        }
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        if !self.keep {
            self.put_back();
        }
    }
}

/// The mappings of a process with their flags; nothing when it has ended.
fn mappings(root: &Path, pid: u32) -> Option<Vec<smaps::Vma>> {
    smaps::read(root, live_thread(root, pid)?).ok()
}

/// What of `calls`, which put flags back, is still to be done: where `holder` lives and has the flag that we set.
fn still_due(root: &Path, holder: &Holder, calls: &[Call]) -> Vec<Call> {
    if calls.is_empty() {
        return Vec::new();
    }
    let vmas = mappings(root, holder.pid()).unwrap_or_default();
    // Asked after the reading, so that what was read is its own.
    if !holder.lives(root) {
        return Vec::new();
    }
    let due = |call: &Call| {
        let flag = call.flag;
        let ranges = having(&vmas, call.range, flag.opposite()).into_iter();
        ranges.map(move |range| Call { range, flag })
    };
    calls.iter().flat_map(due).collect()
}

/// Neighbours joined.
fn in_calls(changes: &[Change]) -> Vec<AddrRange> {
    let mut calls = Vec::new();
    for change in changes {
        change.unit.join_onto(&mut calls);
    }
    calls
}

/// How many calls may be made to a target with so many mappings.
fn room_for_calls(root: &Path, mappings: usize) -> usize {
    const DEFAULT: usize = 65_530;
    let text = fs::read_to_string(root.join("proc/sys/vm/max_map_count")).unwrap_or_default();
    let most: usize = text.trim().parse().unwrap_or(DEFAULT);
    (most / 2).saturating_sub(mappings) / 2
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn unit(n: u64) -> AddrRange {
        AddrRange::new(n << 21, (n + 1) << 21)
    }

    #[test]
    fn a_note_that_cannot_be_kept_is_told_of_once() {
        let root = tempfile::tempdir().unwrap();
        if !leftovers::folder(root.path()).is_some_and(|folder| folder.starts_with(root.path())) {
            println!("SKIP: notes of other users than root lie outside the folder of this test");
            return;
        }
        std::fs::write(root.path().join("run"), "no folder").unwrap();
        let mut flags = Flags::new(root.path());
        flags.write_down();
        flags.write_down();
        let notes = flags.take_notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("thermocline"), "{notes:?}");
        flags.write_down();
        assert!(flags.take_notes().is_empty());
    }

    #[test]
    fn neighbours_are_one_call_and_mappings_are_left_for_the_target() {
        let change = |n| Change {
            unit: unit(n),
            before: None,
        };
        assert_eq!(
            in_calls(&[change(1), change(2), change(4)]),
            [AddrRange::new(1 << 21, 3 << 21), unit(4)]
        );
        let nowhere = Path::new("/nowhere");
        assert_eq!(room_for_calls(nowhere, 32_755), 5);
        assert_eq!(room_for_calls(nowhere, 40_000), 0);
    }
}
