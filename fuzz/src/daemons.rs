//! The life-cycle daemon, DAMON's control files, and the targets that both follow.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use thermo_agent::kubernetes::path::PodPath;
use thermo_agent::kubernetes::pod_list;
use thermo_agent::lifecycle::wire::{MAX_LINE, Request};
use thermo_agent::lifecycle::{Config, Profile, State, fuzzing};
use thermo_backends::offload::{self, DamonUser};
use thermo_backends::smaps::Smaps;
use thermo_damonfs::{ControlFiles, DebugfsFiles, Engine, Ino, ModuleFiles, SysfsFiles, Tree, Write};
use thermo_engine::TargetId;
use thermo_engine::scheme::SystemMetric;
use thermo_kernel::{damon, kallsyms, maps};
use thermo_pagetable::fuzzing::memory_end;
use thermo_targets::{Discovery, LayoutRule, TargetSpec, metric};

use crate::Target;
use crate::root::Root;

/// The targets of this group.
pub const TARGETS: &[Target] = &[
    Target::new("lifecycle_wire", request_is_read_again),
    Target::new("lifecycle_lines", lines_ignore_how_input_is_split),
    Target::new("lifecycle_config", |data| {
        let Ok(text) = std::str::from_utf8(data) else {
            return;
        };
        match Config::parse(text) {
            Ok(config) => assert!(config.apps.iter().all(|app| !app.name.is_empty()), "{config:?}"),
            Err(error) => assert!(error.line >= 1 && error.column >= 1, "{error}"),
        }
        drop((text.parse::<Profile>(), text.parse::<State>()));
    }),
    Target::new("kubernetes_pods", |data| {
        for pod in pod_list::parse(data, None).unwrap_or_default() {
            assert!(!pod.uids.is_empty(), "{pod:?}");
        }
    }),
    Target::new("kubernetes_path", |data| {
        let pod = std::str::from_utf8(data).ok().and_then(PodPath::parse);
        if let Some(pod) = pod {
            assert!(matches!(pod.uid.len(), 32 | 36), "{pod:?}");
            assert!(pod.container.is_none_or(|id| id.len() == 64), "{}", pod.uid);
        }
    }),
    Target::new("damonfs_sysfs", |data| {
        thread_local! {
            static FILES: Arc<SysfsFiles> =
                SysfsFiles::new(engine()).unwrap_or_else(|error| panic!("no control files: {error}"));
        }
        FILES.with(|files| {
            let count = files.tree().find("admin/kdamonds/nr_kdamonds");
            if let Ok(count) = count {
                let _ = files.write(count, Write::new(b"0"));
            }
            write_files(&**files, data);
        });
    }),
    Target::new("damonfs_debugfs", |data| {
        write_files(&*DebugfsFiles::new(engine()), data)
    }),
    Target::new("damonfs_modules", |data| {
        write_files(&*ModuleFiles::new(engine(), None), data)
    }),
    Target::new("target_layout", layout_is_in_order),
    Target::new("proc_kallsyms", |data| {
        thread_local! {
            static ROOT: Root = Root::new(&["proc/kallsyms"]);
        }
        ROOT.with(|root| {
            let found = kallsyms::address(root.fill_whole(data), "page_offset_base");
            assert!(!matches!(found, Ok(Some(0))), "a hidden address is no address");
        });
        let _ = std::str::from_utf8(data).map(memory_end);
    }),
    Target::new("target_discovery", |data| {
        thread_local! {
            static ROOT: Root = Root::new(&[
                "proc/7/stat", "proc/7/status", "proc/7/task/7/children", "proc/8/stat", "proc/8/status", "proc/mounts",
                "proc/7/cgroup",
            ]);
        }
        let spec = TargetSpec {
            children: true,
            ..TargetSpec::for_pids(&[7])
        };
        ROOT.with(|root| {
            let Ok(mut found) = Discovery::new(root.fill(data), spec) else {
                return;
            };
            let none = BTreeSet::new();
            drop((found.update(&none), found.update(&none)));
            let ids: Vec<TargetId> = found.processes().keys().copied().collect();
            ids.into_iter().for_each(|id| drop(found.look_at(id)));
        });
    }),
    Target::new("kdamond_claim", claimed_kdamond_is_of_one_user),
    Target::new("target_metric", |data| {
        thread_local! {
            static ROOT: Root = Root::new(&[
                "sys/devices/system/node/node0/meminfo", "proc/meminfo", "proc/vmstat", "proc/pressure/memory",
                "cg/g/memory.numa_stat", "proc/mounts", "cg/g/cgroup.procs",
            ]);
        }
        ROOT.with(|root| metrics_are_shares(root.fill(data)));
    }),
];

/// What `doctor --leftovers` lists is what the next claim removes: the kdamond of a killed thermo, with the
/// commands for it.
fn claimed_kdamond_is_of_one_user(data: &[u8]) {
    thread_local! {
        static ROOT: Root = Root::new(&[
            "run/thermocline/kdamond", "proc/sys/kernel/random/boot_id", "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
            "sys/kernel/mm/damon/admin/kdamonds/0/state", "sys/kernel/mm/damon/admin/kdamonds/0/pid", "proc/7/stat",
        ]);
    }
    ROOT.with(|root| {
        let root = root.fill(data);
        let (Ok(Some(facts)), Ok(left)) = (damon::read(root), offload::leftover(root)) else {
            return;
        };
        let user = DamonUser::find(root, &facts);
        let DamonUser::KilledThermo { by, kdamond } = user else {
            return assert_eq!(left, None, "{user:?}");
        };
        assert_eq!((user.obstacle(), facts.kdamonds.len()), (None, 1));
        let Some(note) = left else {
            panic!("{user:?} is not listed")
        };
        assert_eq!((note.writer.pid, note.leftovers.len()), (by, 1));
        assert_eq!(
            note.leftovers.iter().any(|text| text.contains("echo off")),
            kdamond.is_some()
        );
    });
}

/// The lines of a client do not depend on how its bytes arrive, and none is longer than the maximum.
fn lines_ignore_how_input_is_split(data: &[u8]) {
    let Some(([repeats, low, high], bytes)) = data.split_first_chunk::<3>() else {
        return;
    };
    // Long enough for lines that are too long.
    let bytes = bytes.repeat(usize::from(repeats % 64) + 1);
    let (lines, is_too_long) = fuzzing::lines(&[&bytes]);
    let (first, second) = bytes.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(bytes.len()));
    assert_eq!(fuzzing::lines(&[first, second]), (lines.clone(), is_too_long));
    assert!(
        lines
            .iter()
            .all(|line| line.len() <= MAX_LINE && !line.contains(&b'\n'))
    );
    let whole = bytes.split(|byte| *byte == b'\n');
    assert!(lines.iter().zip(whole).all(|(line, expected)| line == expected));
}

/// A request is the same after it was printed and read again.
fn request_is_read_again(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(request) = Request::parse(line) else {
            continue;
        };
        let again = request.to_line();
        assert!(
            again.ends_with('\n') && again.trim_end().lines().count() == 1,
            "{again:?}"
        );
        assert_eq!(Request::parse(again.trim_end().as_bytes()).ok(), Some(request));
    }
}

thread_local! {
    static ENGINE_ROOT: RefCell<Option<Root>> = const { RefCell::new(None) };
}

/// An engine on a machine without processes.
fn engine() -> Arc<Engine> {
    thread_local! {
        static ENGINE: Arc<Engine> = {
            let root = Root::new(&["proc/mounts"]);
            let path = root.fill(b"").to_owned();
            ENGINE_ROOT.set(Some(root));
            let new_tracker = || Box::new(Smaps::new(Path::new("/nowhere"), 7)) as Box<_>;
            Arc::new(Engine::new(path, Box::new(new_tracker), |_| {}))
        };
    }
    ENGINE.with(Arc::clone)
}

/// Files whose writes start and stop kdamonds of real processes.
const SWITCHES: [&str; 4] = ["state", "monitor_on", "enabled", "commit_inputs"];

/// Writes to one file after the other: a byte that chooses the file, the length of the text, the text. A
/// write that fails changes nothing.
fn write_files(files: &dyn ControlFiles, mut data: &[u8]) {
    while let Some(([choice, len], rest)) = data.split_first_chunk::<2>() {
        let (text, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        data = rest;
        let mut all = Vec::new();
        collect_files(&files.tree(), Tree::ROOT, &mut all);
        let (name, ino) = &all[usize::from(*choice) % all.len()];
        // More than nine of each make an input slow, and nothing new.
        let text = if name.starts_with("nr_") {
            &text[..text.len().min(1)]
        } else {
            text
        };
        let before = files.read(*ino);
        if files.write(*ino, Write::new(text)).is_err() {
            assert_eq!(files.read(*ino), before, "{name} after {text:?} was refused");
        }
    }
}

fn collect_files(tree: &Tree, dir: Ino, all: &mut Vec<(String, Ino)>) {
    let Ok(entries) = tree.list(dir) else { return };
    for (name, ino) in entries {
        match tree.node(ino) {
            Ok(node) if node.is_dir() => collect_files(tree, ino, all),
            Ok(_) if !SWITCHES.contains(&name) => all.push((name.to_owned(), ino)),
            _ => {}
        }
    }
}

/// The monitored ranges of any list of mappings are ascending, disjoint and not empty.
fn layout_is_in_order(data: &[u8]) {
    thread_local! {
        static ROOT: Root = Root::new(&["proc/7/maps"]);
    }
    let mappings = ROOT.with(|root| maps::read(root.fill(data), 7));
    let Ok(mappings) = mappings else { return };
    for rule in [LayoutRule::ThreeRegions, LayoutRule::Mappings] {
        let ranges = rule.ranges(&mappings);
        assert!(
            ranges.iter().all(|range| !range.is_empty()),
            "{rule:?}: {ranges:?} of {mappings:?}"
        );
        let is_sorted = ranges.is_sorted_by(|one, next| one.end <= next.start);
        assert!(is_sorted, "{rule:?}: {ranges:?} of {mappings:?}");
    }
}

fn metrics_are_shares(root: &Path) {
    let path = "/g".to_owned();
    for (metric, whole) in [
        (SystemMetric::SomeMemPsiUs, u64::MAX),
        (SystemMetric::NodeMemUsedBp { nid: 0 }, 10_000),
        (SystemMetric::NodeMemFreeBp { nid: 0 }, u64::MAX),
        (
            SystemMetric::NodeMemcgUsedBp {
                nid: 0,
                path: path.clone(),
            },
            u64::MAX,
        ),
        (SystemMetric::NodeMemcgFreeBp { nid: 0, path }, 10_000),
        (SystemMetric::ActiveMemBp, 10_000),
        (SystemMetric::InactiveMemBp, 10_000),
        (SystemMetric::FreeMemRate, u64::MAX),
    ] {
        if let Ok(value) = metric::read(root, &metric) {
            assert!(value <= whole, "{metric:?}: {value}");
        }
    }
}
