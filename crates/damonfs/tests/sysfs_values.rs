//! Every file of the layout of sysfs: existence, mode, default, and the errno for each invalid value.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::collections::BTreeMap;

use common::Files;
use thermo_damonfs::{Errno, Ino, Tree};

/// Kinds of files by the values that they reject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ulong,
    /// Every error is EINVAL.
    StrictUlong,
    Uint,
    Int,
    StrictInt,
    Bool,
    Word(&'static [&'static str]),
    Text,
    Count,
    Contexts,
    ReadOnly,
}
use Kind::{Bool, Contexts, Count, Int, ReadOnly, StrictInt, StrictUlong, Text, Uint, Ulong, Word};

const FILTER: [(&str, Kind, &str); 8] = [
    ("matching", Bool, "N"),
    ("allow", Bool, "N"),
    ("memcg_path", Text, ""),
    ("addr_start", Ulong, "0"),
    ("addr_end", Ulong, "0"),
    ("min", Ulong, "0"),
    ("max", Ulong, "0"),
    ("damon_target_idx", Int, "0"),
];

/// Files below `admin/kdamonds`: path, kind, default. Source:
/// Documentation/ABI/testing/sysfs-kernel-mm-damon. `C` is the context, `S` the scheme. [`FILTER`] has the
/// files of filters.
const FILES: [(&str, Kind, &str); 65] = [
    ("nr_kdamonds", Count, "1"),
    ("0/state", Word(&[]), "off"),
    ("0/pid", ReadOnly, "-1"),
    ("0/refresh_ms", Uint, "0"),
    ("0/contexts/nr_contexts", Contexts, "1"),
    ("C/avail_operations", ReadOnly, "vaddr\nfvaddr"),
    ("C/operations", Word(&["vaddr", "fvaddr", "paddr"]), "vaddr"),
    ("C/addr_unit", Ulong, "1"),
    ("C/monitoring_attrs/intervals/sample_us", Ulong, "5000"),
    ("C/monitoring_attrs/intervals/aggr_us", Ulong, "100000"),
    ("C/monitoring_attrs/intervals/update_us", Ulong, "60000000"),
    (
        "C/monitoring_attrs/intervals/intervals_goal/access_bp",
        Ulong,
        "0",
    ),
    ("C/monitoring_attrs/intervals/intervals_goal/aggrs", Ulong, "0"),
    (
        "C/monitoring_attrs/intervals/intervals_goal/min_sample_us",
        Ulong,
        "0",
    ),
    (
        "C/monitoring_attrs/intervals/intervals_goal/max_sample_us",
        Ulong,
        "0",
    ),
    ("C/monitoring_attrs/nr_regions/min", Ulong, "10"),
    ("C/monitoring_attrs/nr_regions/max", Ulong, "1000"),
    ("C/targets/nr_targets", Count, "1"),
    ("C/targets/0/pid_target", StrictInt, "0"),
    ("C/targets/0/regions/nr_regions", Count, "1"),
    ("C/targets/0/regions/0/start", Ulong, "0"),
    ("C/targets/0/regions/0/end", Ulong, "0"),
    ("C/schemes/nr_schemes", Count, "1"),
    (
        "S/action",
        Word(&[
            "willneed",
            "cold",
            "pageout",
            "hugepage",
            "nohugepage",
            "lru_prio",
            "lru_deprio",
            "migrate_hot",
            "migrate_cold",
            "stat",
        ]),
        "stat",
    ),
    ("S/apply_interval_us", Ulong, "0"),
    ("S/target_nid", Int, "-1"),
    ("S/access_pattern/sz/min", Ulong, "0"),
    ("S/access_pattern/sz/max", Ulong, "0"),
    ("S/access_pattern/nr_accesses/min", Ulong, "0"),
    ("S/access_pattern/nr_accesses/max", Ulong, "0"),
    ("S/access_pattern/age/min", Ulong, "0"),
    ("S/access_pattern/age/max", Ulong, "0"),
    ("S/quotas/ms", StrictUlong, "0"),
    ("S/quotas/bytes", StrictUlong, "0"),
    ("S/quotas/reset_interval_ms", StrictUlong, "0"),
    ("S/quotas/effective_bytes", ReadOnly, "0"),
    ("S/quotas/weights/sz_permil", Uint, "0"),
    ("S/quotas/weights/nr_accesses_permil", Uint, "0"),
    ("S/quotas/weights/age_permil", Uint, "0"),
    ("S/quotas/goals/nr_goals", Count, "1"),
    (
        "S/quotas/goals/0/target_metric",
        Word(&[
            "user_input",
            "some_mem_psi_us",
            "node_mem_used_bp",
            "node_mem_free_bp",
        ]),
        "user_input",
    ),
    ("S/quotas/goals/0/target_value", Ulong, "0"),
    ("S/quotas/goals/0/current_value", Ulong, "0"),
    ("S/quotas/goals/0/nid", Int, "0"),
    ("S/watermarks/metric", Word(&["none", "free_mem_rate"]), "none"),
    ("S/watermarks/interval_us", Ulong, "0"),
    ("S/watermarks/high", Ulong, "0"),
    ("S/watermarks/mid", Ulong, "0"),
    ("S/watermarks/low", Ulong, "0"),
    ("S/filters/nr_filters", Count, "1"),
    (
        "S/filters/0/type",
        Word(&[
            "anon",
            "active",
            "memcg",
            "young",
            "hugepage_size",
            "unmapped",
            "addr",
            "target",
        ]),
        "anon",
    ),
    ("S/core_filters/nr_filters", Count, "1"),
    ("S/core_filters/0/type", Word(&["addr", "target"]), "anon"),
    ("S/ops_filters/nr_filters", Count, "1"),
    (
        "S/ops_filters/0/type",
        Word(&["anon", "active", "memcg", "young", "hugepage_size", "unmapped"]),
        "anon",
    ),
    ("S/dests/nr_dests", Count, "1"),
    ("S/dests/0/id", Uint, "0"),
    ("S/dests/0/weight", Uint, "0"),
    ("S/stats/nr_tried", ReadOnly, "0"),
    ("S/stats/sz_tried", ReadOnly, "0"),
    ("S/stats/nr_applied", ReadOnly, "0"),
    ("S/stats/sz_applied", ReadOnly, "0"),
    ("S/stats/sz_ops_filter_passed", ReadOnly, "0"),
    ("S/stats/qt_exceeds", ReadOnly, "0"),
    ("S/tried_regions/total_bytes", ReadOnly, "0"),
];

fn expected() -> BTreeMap<String, (Kind, String)> {
    let full = |path: &str| {
        let path = path
            .replacen("S/", "C/schemes/0/", 1)
            .replacen("C/", "0/contexts/0/", 1);
        format!("admin/kdamonds/{path}")
    };
    let mut files: BTreeMap<_, _> = FILES
        .iter()
        .map(|(path, kind, default)| (full(path), (*kind, (*default).to_owned())))
        .collect();
    for group in ["filters", "core_filters", "ops_filters"] {
        for (name, kind, default) in FILTER {
            files.insert(full(&format!("S/{group}/0/{name}")), (kind, default.to_owned()));
        }
    }
    files
}

fn walk(tree: &Tree, dir: Ino, path: &str, found: &mut Vec<(String, u16)>) {
    for (name, ino) in tree.list(dir).unwrap() {
        let path = format!("{path}{name}");
        let node = tree.node(ino).unwrap();
        if node.is_dir() {
            assert_eq!(node.mode(), 0o755);
            walk(tree, ino, &format!("{path}/"), found);
        } else {
            found.push((path, node.mode()));
        }
    }
}

#[test]
fn sysfs_has_kernel_files_modes_and_defaults() {
    let (files, expected) = (Files::with_one_of_each(), expected());
    let mut found = Vec::new();
    walk(&files.0.tree(), Tree::ROOT, "", &mut found);
    let paths: Vec<&String> = found.iter().map(|(path, _)| path).collect();
    for path in expected.keys() {
        assert!(paths.contains(&path), "{path} is missing");
    }
    for (path, mode) in &found {
        let (kind, default) = expected
            .get(path)
            .unwrap_or_else(|| panic!("{path} is not in the kernel"));
        assert_eq!(*mode, if *kind == ReadOnly { 0o400 } else { 0o600 }, "{path}");
        assert_eq!(files.read(path).unwrap(), format!("{default}\n"), "{path}");
    }
}

/// Invalid values for a file of this kind, each with its errno.
fn invalid_values(kind: Kind) -> Vec<(&'static str, Errno)> {
    let mut wrong = vec![
        ("\n", Errno::INVAL),
        (" 1", Errno::INVAL),
        ("1 ", Errno::INVAL),
        ("x", Errno::INVAL),
        ("1\n\n", Errno::INVAL),
        ("1,000", Errno::INVAL),
    ];
    let overflow = |strict: bool| if strict { Errno::INVAL } else { Errno::RANGE };
    match kind {
        Ulong | StrictUlong => {
            wrong.push(("-1", Errno::INVAL));
            wrong.push(("18446744073709551616", overflow(kind == StrictUlong)));
        }
        Uint => {
            wrong.push(("-1", Errno::INVAL));
            wrong.push(("4294967296", Errno::RANGE));
        }
        Int | StrictInt => {
            wrong.push(("2147483648", overflow(kind == StrictInt)));
            wrong.push(("-2147483649", overflow(kind == StrictInt)));
        }
        Count | Contexts => {
            wrong.push(("-1", Errno::INVAL));
            wrong.push(("2147483648", Errno::RANGE));
            wrong.push(match kind {
                Contexts => ("2", Errno::INVAL),
                _ => ("2147483647", Errno::NOMEM),
            });
        }
        // A boolean is decided by its first letter.
        Bool => wrong.retain(|(text, _)| !text.starts_with('1')),
        Word(_) => wrong.extend([
            ("STAT", Errno::INVAL),
            ("stat ", Errno::INVAL),
            ("sta", Errno::INVAL),
        ]),
        Text => wrong.clear(),
        ReadOnly => wrong = vec![("1", Errno::ACCESS), ("x", Errno::ACCESS)],
    }
    wrong
}

#[test]
fn sysfs_rejects_invalid_values_without_change() {
    let files = Files::with_one_of_each();
    for (path, (kind, _)) in expected() {
        let before = files.read(&path).unwrap();
        for (text, errno) in invalid_values(kind) {
            assert_eq!(files.write(&path, text), Err(errno), "{text:?} to {path}");
            assert_eq!(files.read(&path).unwrap(), before, "{text:?} to {path}");
        }
        assert_eq!(files.write(&path, ""), Ok(0), "an empty write is ignored");
    }
    assert_eq!(
        files.write("admin/kdamonds/0/contexts/0/addr_unit", "0"),
        Err(Errno::INVAL)
    );
}

#[test]
fn sysfs_shows_values_as_the_kernel() {
    let files = Files::with_one_of_each();
    for (path, (kind, _)) in expected() {
        let valid: &[(&str, &str)] = match kind {
            Ulong | StrictUlong => &[
                ("0x10\n", "16"),
                ("+7", "7"),
                ("010", "8"),
                ("18446744073709551615", "18446744073709551615"),
            ],
            Uint => &[("4294967295", "4294967295"), ("0x1", "1")],
            Int | StrictInt => &[("-2147483648\n", "-2147483648"), ("+3", "3")],
            Bool => &[("y", "Y"), ("off", "N"), ("on\n", "Y"), ("0", "N")],
            Text => &[("/a b/c", "/a b/c"), ("\u{e4}", "\u{e4}")],
            Word(_) | Count | Contexts | ReadOnly => &[],
        };
        for (text, shown) in valid {
            files.set(&path, text);
            assert_eq!(
                files.read(&path).unwrap(),
                format!("{shown}\n"),
                "{text:?} to {path}"
            );
        }
        if let Word(words) = kind {
            for word in words {
                files.set(&path, format!("{word}\n"));
                assert_eq!(files.read(&path).unwrap(), format!("{word}\n"), "{path}");
            }
        }
    }
}

#[test]
fn long_writes_are_cut_to_a_page() {
    let files = Files::with_one_of_each();
    let long = "9".repeat(1 << 20);
    for (path, (kind, _)) in expected() {
        match kind {
            Text => assert_eq!(files.write(&path, &long), Ok(4096), "{path}"),
            // The digits of one page overflow already.
            Ulong | Uint | Int | Count | Contexts => {
                assert_eq!(files.write(&path, &long), Err(Errno::RANGE), "{path}")
            }
            StrictUlong | StrictInt | Bool | Word(_) => {
                assert_eq!(files.write(&path, &long), Err(Errno::INVAL), "{path}");
            }
            ReadOnly => assert_eq!(files.write(&path, &long), Err(Errno::ACCESS), "{path}"),
        }
    }
}

#[test]
fn concurrent_writes_keep_values_whole() {
    let files = Files::with_one_of_each();
    let path = "admin/kdamonds/0/contexts/0/monitoring_attrs/nr_regions/max";
    let schemes = "admin/kdamonds/0/contexts/0/schemes/nr_schemes";
    std::thread::scope(|scope| {
        for thread in 1..=16_u64 {
            let files = &files;
            scope.spawn(move || {
                for _ in 0..200 {
                    files.set(path, thread * 1_000_000_007);
                    assert_eq!(files.number(path) % 1_000_000_007, 0);
                    files.set(schemes, thread % 3);
                    // Another thread may replace the directory at any moment. Then the file in it is gone.
                    match files.write("admin/kdamonds/0/contexts/0/schemes/0/action", "cold") {
                        Ok(4) | Err(Errno::NOENT | Errno::NODEV) => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let nr_schemes = files.number(schemes);
    for nth in 0..3 {
        let exists = files
            .read(&format!("admin/kdamonds/0/contexts/0/schemes/{nth}/action"))
            .is_ok();
        assert_eq!(exists, nth < nr_schemes);
    }
}
