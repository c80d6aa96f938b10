//! Programs that load more than there may be room for.
//!
//! A program that loads touches its memory once, and reads files for it that nobody needs again. When there is no room for
//! both, the accessed marks are what makes the kernel drop the files: who takes those marks off has it page out what was
//! loaded (docs/results/2026-11-23-order.md). So a target counts as delicate while it grows and a quarter of what its
//! control groups may have is in use, or, on a machine with swap, most memory is.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_core::{Bytes, Nanos, TargetId};
use thermo_sys::cgroup::Group;
use thermo_sys::memcg::Limited;
use thermo_sys::meminfo;
use thermo_sys::statm::Statm;

/// It is asked no more often.
const ASKED: Nanos = Nanos::millis(500);
/// A target grows that became larger by one part in so many a second, and by no less than so much,
const PART: u64 = 64;
const LEAST: u64 = 1 << 20;
/// and goes on doing so for so long after that was seen.
const LASTS: Nanos = Nanos::secs(10);
/// One part in so many of a limit in use leaves little room for what grows.
const USED: u64 = 4;
/// As does so small a part of the machine's memory being free.
const FREE: u64 = 8;

/// What is known of the growth of targets.
#[derive(Debug, Default)]
pub(super) struct Loading(BTreeMap<TargetId, Growth>);

#[derive(Debug, Clone, Copy)]
struct Growth {
    /// When it was looked at last, and its size then.
    asked: Nanos,
    size: Statm,
    /// Until when it counts as growing.
    until: Nanos,
    is_delicate: bool,
}

impl Loading {
    /// Whether target `id`, process `pid`, which is as large as `size` says, should not be looked at page by page at `now`.
    pub(super) fn is_delicate(
        &mut self,
        root: &Path,
        (id, pid): (TargetId, u32),
        size: Statm,
        now: Nanos,
    ) -> bool {
        let growth = self.0.entry(id).or_insert(Growth {
            asked: Nanos::ZERO,
            size,
            // It may grow: the next look shows.
            until: now.saturating_add(ASKED),
            is_delicate: false,
        });
        let passed = now.saturating_sub(growth.asked);
        if growth.asked != Nanos::ZERO && passed < ASKED {
            return growth.is_delicate;
        }
        if grew(growth.size, size, passed) {
            growth.until = now.saturating_add(LASTS);
        }
        (growth.asked, growth.size) = (now, size);
        growth.is_delicate = now < growth.until && is_room_short(root, pid);
        growth.is_delicate
    }

    pub(super) fn forget(&mut self, id: TargetId) {
        self.0.remove(&id);
    }
}

/// Whether so much came within `passed`: in memory, or, where that is full, mapped.
fn grew(before: Statm, now: Statm, passed: Nanos) -> bool {
    let least = (now.resident.0 / PART).max(LEAST);
    let per_second =
        |more: Bytes| u128::from(more.0) * u128::from(Nanos::secs(1).0) / u128::from(passed.0.max(1));
    let more = now.resident.saturating_sub(before.resident);
    let more = more.max(now.size.saturating_sub(before.size));
    per_second(more) >= u128::from(least)
}

/// Whether what grows may soon have something else paged out. What cannot be read tells of no limit.
fn is_room_short(root: &Path, pid: u32) -> bool {
    let groups = Group::of_process(root, Some(pid), "memory");
    let mut limited = groups
        .iter()
        .flat_map(|group| Limited::all_of(group).unwrap_or_default());
    let is_used = |group: Limited| match (group.limit(), group.usage()) {
        (Ok(Some(limit)), Ok(usage)) => usage.0 >= limit.0 / USED,
        _ => false,
    };
    let is_machine_full = || {
        meminfo::read(root)
            .is_ok_and(|info| info.swap_total > Bytes::ZERO && info.free.0 < info.total.0 / FREE)
    };
    limited.any(is_used) || is_machine_full()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    const TARGET: (TargetId, u32) = (TargetId(0), 5);

    /// A machine on which process 5 is in a group with a limit of 200 MiB.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
            ("proc/5/cgroup", "0::/svc\n"),
            (
                "proc/meminfo",
                "MemTotal: 8000000 kB\nMemFree: 10 kB\nSwapTotal: 0 kB\n",
            ),
            ("sys/fs/cgroup/svc/memory.stat", ""),
            ("sys/fs/cgroup/svc/memory.max", "209715200"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        in_use(&root, 40);
        root
    }

    fn in_use(root: &tempfile::TempDir, mib: u64) {
        let file = root.path().join("sys/fs/cgroup/svc/memory.current");
        fs::write(file, Bytes::mib(mib).0.to_string()).unwrap();
    }

    fn size(mib: u64) -> Statm {
        Statm {
            size: Bytes::mib(mib + 100),
            resident: Bytes::mib(mib),
            shared: Bytes::ZERO,
        }
    }

    #[test]
    fn what_grows_is_delicate_where_room_is_short() {
        let root = machine();
        let mut loading = Loading::default();
        let mut at = |ms, mib| loading.is_delicate(root.path(), TARGET, size(mib), Nanos::millis(ms));
        assert!(!at(1000, 20), "there is room");
        in_use(&root, 60);
        assert!(!at(1400, 40), "it is not asked yet");
        assert!(at(2000, 40));
        assert!(at(3000, 40), "it has grown a moment ago");
        assert!(at(11_900, 40));
        assert!(!at(13_000, 40), "it does not grow any more");
        assert!(!at(14_000, 41) || at(15_000, 41), "a MiB a second is growth");
        in_use(&root, 40);
        assert!(!at(16_000, 80), "there is room again");
    }

    #[test]
    fn at_first_nobody_knows_and_the_next_look_shows() {
        let root = machine();
        in_use(&root, 100);
        let mut loading = Loading::default();
        let mut at = |ms, mib| loading.is_delicate(root.path(), TARGET, size(mib), Nanos::millis(ms));
        assert!(at(1000, 90));
        assert!(!at(1600, 90));
    }

    #[test]
    fn a_full_machine_is_short_of_room_where_it_has_swap() {
        let root = machine();
        let is_short = || is_room_short(root.path(), 5);
        assert!(!is_short());
        let text = "MemTotal: 8000000 kB\nMemFree: 10 kB\nSwapTotal: 1000 kB\n";
        fs::write(root.path().join("proc/meminfo"), text).unwrap();
        assert!(is_short());
    }
}
