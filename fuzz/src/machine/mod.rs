//! Readers of `/proc`, `/sys` and control groups, and the verdict of seccomp filters.

#[cfg(target_arch = "x86_64")]
mod seccomp;

use std::path::Path;

use thermo_kernel::capabilities::Capabilities;
use thermo_kernel::cgroup::{self, Freezers, Group};
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::leftovers::{self, Leftover, Note, Until};
use thermo_kernel::memcg::Memcg;
use thermo_kernel::mountinfo::{self, MountPoint};
use thermo_kernel::page_idle::IdleBitmap;
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::{
    children, damon, iomem, kvm, lockdown, lru_gen, maps, meminfo, net_unix, node, psi, schedstat, smaps,
    stat, statm, status, swap, thp, uname, vmstat, zoneinfo, zram,
};
use thermo_units::{Addr, AddrRange, PAGE_SIZE};

use crate::Target;
use crate::root::Root;

/// The process of each fake machine.
const PID: u32 = 7;

/// A target that runs `$read` on a root with `$files`.
macro_rules! reader {
    ($name:literal, [$($file:literal),+ $(,)?], $read:expr) => {
        Target::new($name, |data| {
            thread_local! {
                static ROOT: Root = Root::new(&[$($file),+]);
            }
            ROOT.with(|root| ($read)(root.fill(data)));
        })
    };
}

/// The targets of this group.
pub const TARGETS: &[Target] = &[
    reader!("proc_maps", ["proc/7/maps"], maps_keep_their_lines),
    reader!(
        "proc_smaps",
        ["proc/7/smaps", "proc/7/smaps_rollup"],
        smaps_belong_to_mappings
    ),
    reader!(
        "proc_stat",
        ["proc/7/stat", "proc/7/schedstat"],
        stat_is_that_of_one_process
    ),
    reader!("proc_status", ["proc/7/status", "proc/7/statm"], |root| {
        drop((status::read(root, PID), statm::read(root, PID)));
        drop(Capabilities::effective(root, PID));
    }),
    reader!(
        "proc_children",
        ["proc/7/task/7/children", "proc/8/stat"],
        |root| {
            let Ok(pids) = children::read(root, PID) else {
                return;
            };
            assert!(pids.is_sorted_by(|one, next| one < next), "{pids:?}");
        }
    ),
    reader!(
        "proc_meminfo",
        ["proc/meminfo", "proc/vmstat", "proc/zoneinfo"],
        |root| {
            drop((meminfo::read(root), zoneinfo::per_cpu_free(root)));
            let Ok(vmstat) = vmstat::read(root) else { return };
            let _ = (vmstat.active_pages(), vmstat.inactive_pages());
            let _ = (vmstat.scanned_pages(), vmstat.scanned_pages_of_groups());
        }
    ),
    reader!("proc_iomem", ["proc/iomem"], |root| {
        let Ok(ranges) = iomem::system_ram(root) else {
            return;
        };
        for range in &ranges {
            assert!(
                !range.is_empty() && range.start.0.is_multiple_of(PAGE_SIZE),
                "{range}"
            );
        }
        let in_order = |one: &AddrRange, next: &AddrRange| one.end <= next.start;
        assert!(ranges.is_sorted_by(in_order), "{ranges:?}");
    }),
    reader!("proc_psi", ["proc/pressure/memory"], |root| drop(
        psi::system_stall(root)
    )),
    reader!("proc_swaps", ["proc/swaps"], |root| drop(swap::read(root))),
    reader!("proc_mountinfo", ["proc/self/mountinfo"], |root| {
        drop(mountinfo::is_mounted(
            root,
            &MountPoint::new(Path::new("/run/a b")),
        ));
    }),
    reader!("proc_net_unix", ["proc/net/unix"], |root| {
        let names = net_unix::abstract_names(root, "ours/").unwrap_or_default();
        assert!(names.iter().all(|name| name.starts_with("ours/")), "{names:?}");
    }),
    reader!(
        "proc_pagemap",
        ["proc/7/pagemap"],
        pagemap_is_no_longer_than_the_range
    ),
    reader!(
        "proc_kpageflags",
        ["proc/kpageflags", "proc/kpagecount", "proc/kpagecgroup"],
        |root| {
            let Ok(frames) = PageFrames::open(root) else {
                return;
            };
            for pfn in [0, 1, 2, 3, u64::MAX / 8, u64::MAX] {
                drop((frames.flags(pfn), frames.map_count(pfn), frames.cgroup(pfn)));
            }
        }
    ),
    reader!("sys_page_idle", ["sys/kernel/mm/page_idle/bitmap"], |root| {
        let Ok(bitmap) = IdleBitmap::open(root) else {
            return;
        };
        let _ = [0, 1, u64::MAX / 8].map(|word| bitmap.read_idle(word).ok());
    }),
    reader!(
        "sys_words",
        [
            "sys/kernel/mm/transparent_hugepage/enabled",
            "sys/kernel/mm/lru_gen/enabled",
            "sys/kernel/security/lockdown",
            "proc/misc",
            "proc/sys/kernel/osrelease",
            "sys/devices/system/node/node0/meminfo",
        ],
        |root| {
            let _ = (
                thp::read(root),
                lru_gen::is_enabled(root),
                lockdown::is_confidential(root),
            );
            let _ = (
                kvm::is_available(root),
                uname::read(root).at_least(6, 7),
                node::memory(root, 0),
            );
        }
    ),
    reader!(
        "sys_zram",
        ["sys/block/zram0/mm_stat", "sys/block/zram1/mm_stat"],
        |root| {
            drop(zram::mem_used(root));
        }
    ),
    reader!(
        "sys_damon",
        [
            "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
            "sys/kernel/mm/damon/admin/kdamonds/0/state",
            "sys/kernel/mm/damon/admin/kdamonds/0/pid",
            "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/avail_operations",
            "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/tried_regions/0/start",
            "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/tried_regions/0/end",
            "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/tried_regions/0/nr_accesses",
            "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/tried_regions/0/age",
            "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/stats/nr_tried",
        ],
        kdamonds_are_listed
    ),
    reader!(
        "cgroup_of_process",
        [
            "proc/mounts",
            "proc/7/cgroup",
            "cg/cgroup.controllers",
            "cg/g/cgroup.events",
            "cg/g/cgroup.procs"
        ],
        groups_stay_below_the_root
    ),
    reader!(
        "cgroup_memory",
        [
            "g/memory.stat",
            "g/memory.max",
            "g/memory.limit_in_bytes",
            "g/memory.high",
            "g/memory.numa_stat",
            "g/memory.failcnt",
            "g/memory.current",
        ],
        |root: &Path| [cgroup::Version::V1, cgroup::Version::V2]
            .map(|version| memory_of_group(root, version))
    ),
    reader!(
        "leftovers",
        ["notes/flags-1-0", "proc/self/mountinfo", "proc/9/stat"],
        notes_are_listed
    ),
    Target::new("leftovers_written", written_note_is_read_back),
    // Calls are injected, so filters evaluated, only there.
    #[cfg(target_arch = "x86_64")]
    Target::new("seccomp", seccomp::verdict_is_that_of_the_kernel),
];

fn maps_keep_their_lines(root: &Path) {
    let Ok(mappings) = maps::read(root, PID) else {
        return;
    };
    for mapping in &mappings {
        let _ = (mapping.is_special(), mapping.is_device(), mapping.range.len());
        assert!(!mapping.name.contains('\n'), "{mapping:?}");
    }
}

fn smaps_belong_to_mappings(root: &Path) {
    for vma in smaps::read(root, PID).unwrap_or_default() {
        let _ = (vma.has_flag("lo"), vma.has_referenced_count());
    }
    drop(smaps::rollup(root, PID));
}

fn stat_is_that_of_one_process(root: &Path) {
    if let Ok(stat) = stat::read(root, PID) {
        let _ = (
            stat.process_lives(),
            stat.is_kernel_thread(),
            stat.image.is_known(),
        );
    }
    drop(schedstat::cpu(root, PID));
}

fn pagemap_is_no_longer_than_the_range(root: &Path) {
    let Ok(pagemap) = Pagemap::open(root, PID) else {
        return;
    };
    let mut pages = Vec::new();
    for (start, end) in [(0, 0x3001), (0x1fff, 0x10_0000), (u64::MAX - 1, u64::MAX), (9, 8)] {
        let range = AddrRange::new(start, end);
        if pagemap.read(range, &mut pages).is_ok() {
            let most = range.end.align_up().0.saturating_sub(range.start.align_down().0) / PAGE_SIZE;
            assert!(pages.len() as u64 <= most, "{range}: {}", pages.len());
        }
        let _ = pagemap.page(Addr(start)).map(|page| (page.pfn(), page.is_file()));
    }
}

fn kdamonds_are_listed(root: &Path) {
    if let Ok(Some(facts)) = damon::read(root) {
        assert!(facts.kdamonds.len() <= 1, "one has a folder: {facts:?}");
    }
    let _ = damon::is_running(root);
    let kdamond = damon::Admin::new(root).kdamond(0);
    drop((
        kdamond.is_running(),
        kdamond.pid(),
        kdamond.tried_regions(0),
        kdamond.stats(0),
    ));
}

fn groups_stay_below_the_root(root: &Path) {
    for mount in cgroup::mounts(root).unwrap_or_default() {
        assert!(mount.dir.starts_with(root), "{mount:?}");
    }
    for group in Group::of_process(root, Some(PID), "memory") {
        assert!(group.dir.starts_with(root), "{group:?}");
        assert!(
            !group.dir.components().any(|step| step.as_os_str() == ".."),
            "{group:?}"
        );
        drop((group.path(root), group.is_root(root), group.procs()));
    }
    if let Ok(freezers) = Freezers::find(root) {
        let _ = freezers.is_frozen(PID);
    }
    drop(Group::find_unit(root, "redis", 1000));
    drop(Group::find(root, "/g").map(|group| group.procs()));
}

fn memory_of_group(root: &Path, version: cgroup::Version) {
    let group = Group {
        version,
        dir: root.join("g"),
    };
    let memcg = Memcg::new(group);
    drop((
        memcg.stat(),
        memcg.usage(),
        memcg.limit(),
        memcg.effective_limit(),
    ));
    drop((
        memcg.reclaimable_file(),
        memcg.scanned_pages(),
        memcg.node_usage(0),
    ));
}

fn notes_are_listed(root: &Path) {
    for note in leftovers::find_orphaned(root, &root.join("notes")) {
        assert!(!note.leftovers.is_empty(), "{note:?}");
        assert!(!note.kind.contains(char::is_whitespace), "{note:?}");
    }
}

/// A description of any text is one line of its note, and a note of another process shows it.
fn written_note_is_read_back(data: &[u8]) {
    thread_local! {
        static ROOT: Root = Root::new(&["proc/self/mountinfo", "notes/x"]);
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    ROOT.with(|root| {
        // Without a stat file of this process, its note is that of a process that has ended.
        let root = root.fill(b"");
        let folder = root.join("notes");
        let Ok(note) = Note::new(root, &folder, "fuzz") else {
            panic!("no note")
        };
        let leftover = Leftover {
            until: Until::Undone,
            description: text.to_owned(),
        };
        assert!(note.write(&[leftover]).is_ok());
        let found = leftovers::find_orphaned(root, &folder);
        let texts: Vec<&String> = found.iter().flat_map(|note| &note.leftovers).collect();
        assert_eq!(texts.len(), 1, "{text:?}: {found:?}");
        let one_line = text.replace(['\n', '\r'], " ");
        assert_eq!(texts[0].replace('\r', " ").trim_end(), one_line.trim_end());
    });
}
