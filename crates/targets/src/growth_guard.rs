//! Programs that load more than there may be room for.
//!
//! A program that loads touches its memory once, and reads files for it that nobody needs again. When there is no room for
//! both, the accessed marks are what makes the kernel drop the files: who takes those marks off has it page out what was
//! loaded (docs/evaluation.md). So a target counts as delicate while it grows and a quarter of what its
//! control groups may have is in use, or, on a machine with swap, little memory can be had without it.
//!
//! A target whose memory comes back loads as well: what was paged out, because it is needed now. It takes the place of what
//! is not needed any more, and has nothing to say so but its marks. So a target is as delicate while, with memory short on
//! the machine, it has to read pages.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_engine::TargetId;
use thermo_kernel::cgroup::Group;
use thermo_kernel::memcg::Memcg;
use thermo_kernel::statm::Statm;
use thermo_kernel::{file, meminfo, stat};
use thermo_units::{Bytes, Nanos, PAGE_SIZE};

use crate::memory_pressure::MemoryPressure;

/// It is asked no more often.
const ASKED: Nanos = Nanos::millis(500);
/// A target grows that became larger by one part in so many a second, and by no less than so much,
const PART: u64 = 64;
const LEAST: u64 = 1 << 20;
/// and its memory comes back that has to be read with so many faults as are one part in so many of it a second, and with no
/// fewer than for that, nor more than for this.
const PART_BACK: u64 = 256;
const MOST_BACK: u64 = 16 << 20;
/// What grows or comes back goes on doing so for so long after that was seen.
const LASTS: Nanos = Nanos::secs(10);
/// One part in so many of a limit in use leaves little room for what grows.
const USED: u64 = 4;
/// So much of it in use leaves none: what grows has something paged out, and is no larger in memory for it.
const FULL: u64 = 16;
/// Such a part of the machine's memory being available is little.
const AVAILABLE: u64 = 8;

/// What is known of what targets load.
#[derive(Debug, Default)]
pub(super) struct GrowthGuard {
    targets: BTreeMap<TargetId, Load>,
    /// Of the control groups that were asked about since targets were brought up to date, as `/proc/PID/cgroup` names them.
    rooms: BTreeMap<String, Room>,
    pressure: MemoryPressure,
}

#[derive(Debug, Clone, Copy)]
struct Load {
    /// When it was looked at last, and its size then.
    asked: Nanos,
    size: Statm,
    /// How many of its faults had to read pages so far, where that was asked.
    faults: Option<u64>,
    /// Until when it counts as growing, and as coming back.
    grows_until: Nanos,
    back_until: Nanos,
    defer_scan: bool,
}

impl Load {
    const fn new(size: Statm, now: Nanos) -> Self {
        Self {
            asked: now,
            size,
            faults: None,
            grows_until: Nanos::ZERO,
            back_until: Nanos::ZERO,
            defer_scan: false,
        }
    }
}

/// How much more there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Room {
    Enough,
    Little,
    None,
}

impl GrowthGuard {
    /// Targets of the machine at `root` are about to be brought up to date: what room there is has to be asked anew.
    pub(super) fn begin(&mut self, root: &Path, now: Nanos) {
        self.rooms.clear();
        self.pressure.look(root, now);
    }

    /// Whether target `id`, process `pid`, which is as large as `size` says, should not be looked at page by page at `now`.
    /// Of one that is new nothing is known yet.
    pub(super) fn defer_scan(
        &mut self,
        root: &Path,
        (id, pid): (TargetId, u32),
        size: Statm,
        now: Nanos,
    ) -> bool {
        let before = *self.targets.entry(id).or_insert_with(|| Load::new(size, now));
        let passed = now.saturating_sub(before.asked);
        if passed < ASKED {
            return before.defer_scan;
        }
        // `/proc/PID/stat` is dear to read: only where pages may come back.
        let is_short = self.pressure.is_under_pressure();
        let read = is_short.then(|| stat::read(root, pid).ok()).flatten();
        let mut load = Load {
            asked: now,
            size,
            faults: read.map(|stat| stat.majflt),
            ..before
        };
        let many = |more: Bytes, least: u64| {
            let least = least.max(LEAST);
            u128::from(more.0) * u128::from(Nanos::secs(1).0) >= u128::from(least) * u128::from(passed.0)
        };
        let came = many(
            size.resident.saturating_sub(before.size.resident),
            size.resident.0 / PART,
        );
        let mapped = many(size.size.saturating_sub(before.size.size), size.resident.0 / PART);
        let room = match came || mapped || now < before.grows_until {
            true => self.room(root, pid),
            false => Room::Enough,
        };
        // Address space alone tells of nothing but where there is no room for memory.
        if came || mapped && room == Room::None {
            load.grows_until = now.saturating_add(LASTS);
        }
        let back = load
            .faults
            .zip(before.faults)
            .map(|(now, before)| now.saturating_sub(before));
        let least_back = (size.resident.0 / PART_BACK).min(MOST_BACK);
        if back.is_some_and(|faults| many(Bytes(faults.saturating_mul(PAGE_SIZE)), least_back)) {
            load.back_until = now.saturating_add(LASTS);
        }
        load.defer_scan = now < load.grows_until && room > Room::Enough || now < load.back_until;
        self.targets.insert(id, load);
        load.defer_scan
    }

    pub(super) fn forget(&mut self, id: TargetId) {
        self.targets.remove(&id);
    }

    fn room(&mut self, root: &Path, pid: u32) -> Room {
        let names = file::text(&root.join(format!("proc/{pid}/cgroup"))).unwrap_or_default();
        if let Some(room) = self.rooms.get(&names) {
            return *room;
        }
        let groups = Group::of_process(root, Some(pid), "memory");
        let limited = groups
            .iter()
            .flat_map(|group| Memcg::limited(group).unwrap_or_default());
        let room = limited
            .map(|group| room_of(&group))
            .max()
            .unwrap_or(Room::Enough)
            .max(room_of_machine(root));
        self.rooms.insert(names, room);
        room
    }
}

/// What cannot be read tells of no limit.
fn room_of(group: &Memcg) -> Room {
    let (Ok(Some(limit)), Ok(usage)) = (group.effective_limit(), group.usage()) else {
        return Room::Enough;
    };
    match () {
        () if usage.0 >= limit.0 - limit.0 / FULL => Room::None,
        () if usage.0 >= limit.0 / USED => Room::Little,
        () => Room::Enough,
    }
}

/// Page cache counts as room: of what a machine caches there is much that nobody needs again.
fn room_of_machine(root: &Path) -> Room {
    let is_short = |info: &meminfo::MemInfo| {
        info.swap_total > Bytes::ZERO && info.available.0 < info.total.0 / AVAILABLE
    };
    match meminfo::read(root) {
        Ok(info) if is_short(&info) => Room::Little,
        _ => Room::Enough,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    use crate::fake::lose_time;

    const TARGET: (TargetId, u32) = (TargetId(0), 5);

    /// A machine on which process 5 is in a group with a limit of 200 MiB, of which so many are in use.
    fn machine(mib: u64) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
            ("proc/5/cgroup", "0::/svc\n"),
            (
                "proc/meminfo",
                "MemTotal: 8000000 kB\nMemAvailable: 10 kB\nSwapTotal: 0 kB\n",
            ),
            ("sys/fs/cgroup/svc/memory.stat", ""),
            ("sys/fs/cgroup/svc/memory.max", "209715200"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        in_use(&root, mib);
        root
    }

    fn in_use(root: &tempfile::TempDir, mib: u64) {
        let file = root.path().join("sys/fs/cgroup/svc/memory.current");
        fs::write(file, Bytes::mib(mib).0.to_string()).unwrap();
    }

    /// One that maps and has so many MiB.
    fn size(mapped: u64, resident: u64) -> Statm {
        Statm {
            size: Bytes::mib(mapped),
            resident: Bytes::mib(resident),
            shared: Bytes::ZERO,
        }
    }

    fn asks(root: &tempfile::TempDir) -> impl FnMut(u64, Statm) -> bool {
        let mut loading = GrowthGuard::default();
        move |ms, size| {
            loading.begin(root.path(), Nanos::millis(ms));
            loading.defer_scan(root.path(), TARGET, size, Nanos::millis(ms))
        }
    }

    #[test]
    fn what_grows_is_delicate_where_room_is_short() {
        let root = machine(40);
        let mut at = asks(&root);
        assert!(!at(1000, size(900, 20)), "nothing is known of it yet");
        assert!(!at(2000, size(900, 30)), "there is room");
        in_use(&root, 60);
        assert!(!at(2400, size(900, 40)), "it is not asked yet");
        assert!(at(3000, size(900, 40)));
        assert!(at(4000, size(900, 40)), "it has grown a moment ago");
        assert!(at(12_900, size(900, 40)));
        assert!(!at(14_000, size(900, 40)), "it does not grow any more");
        assert!(at(15_000, size(900, 41)), "a MiB in a second");
        assert!(!at(26_000, size(900, 42)), "a MiB in ten seconds");
        assert!(at(27_000, size(900, 50)));
        in_use(&root, 40);
        assert!(!at(28_000, size(900, 80)), "there is room again");
    }

    #[test]
    fn address_space_tells_of_growth_only_where_memory_cannot_grow() {
        let root = machine(100);
        let mut at = asks(&root);
        assert!(!at(1000, size(900, 90)));
        assert!(!at(2000, size(1800, 90)), "a heap may be reserved");
        in_use(&root, 199);
        assert!(at(3000, size(1900, 90)));
        assert!(at(4000, size(1900, 90)));
        assert!(!at(14_000, size(1900, 90)));
    }

    #[test]
    fn what_comes_back_is_delicate_while_memory_is_short() {
        let root = machine(10);
        let mut loading = GrowthGuard::default();
        let mut at = |ms, lost_us: u64, faults: u64| {
            lose_time(root.path(), lost_us);
            let stat = format!("5 (db) S 1 5 5 0 -1 4194560 0 0 {faults} 0 0 0 0 0 20 0 1 0 70 0 0\n");
            fs::write(root.path().join("proc/5/stat"), stat).unwrap();
            let now = Nanos::millis(ms);
            loading.begin(root.path(), now);
            loading.defer_scan(root.path(), TARGET, size(900, 512), now)
        };
        assert!(!at(0, 0, 1000));
        assert!(!at(1000, 0, 2000), "memory is not short");
        assert!(!at(2000, 5000, 3000), "before it was, faults were not counted");
        assert!(!at(3000, 10_000, 3500), "few of half a GiB");
        assert!(at(4000, 15_000, 4012), "512 pages of 4 KiB are 2 MiB");
        assert!(at(13_900, 15_000, 4012), "they came a moment ago");
        assert!(!at(14_500, 15_000, 4012));
        assert!(!at(15_000, 15_000, 9000), "memory is not short any more");
    }

    #[test]
    fn a_full_machine_is_short_of_room_where_it_has_swap() {
        let root = machine(10);
        assert_eq!(room_of_machine(root.path()), Room::Enough);
        let text = "MemTotal: 8000000 kB\nMemAvailable: 10 kB\nSwapTotal: 1000 kB\n";
        fs::write(root.path().join("proc/meminfo"), text).unwrap();
        assert_eq!(room_of_machine(root.path()), Room::Little);
    }
}
