//! A temporary memory control group: limited, read, removed.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use thermo_kernel::cgroup::TemporaryGroup;
use thermo_kernel::memcg::Memcg;
use thermo_kernel::vmstat;
use thermo_units::Bytes;

fn group(name: &str) -> Option<TemporaryGroup> {
    let name = format!("thermo-test-{name}-{}", std::process::id());
    TemporaryGroup::create(Path::new("/"), "memory", &name)
        .inspect_err(|why| eprintln!("SKIP: cannot create a memory control group: {why}"))
        .ok()
}

#[test]
fn limit_is_set_and_removed() {
    let Some(own) = group("memcg") else { return };
    let memcg = Memcg::new(own.group().clone());
    assert_eq!(memcg.limit().unwrap(), None);
    memcg.set_limit(Some(Bytes::mib(64))).unwrap();
    assert_eq!(memcg.limit().unwrap(), Some(Bytes::mib(64)));
    memcg.set_limit(None).unwrap();
    assert_eq!(memcg.limit().unwrap(), None);
    memcg.stat().unwrap();
    assert!(memcg.usage().unwrap() < Bytes::mib(64), "the group is empty");
    let dir = own.group().dir.clone();
    own.remove().unwrap();
    assert!(!dir.exists());
}

#[test]
fn scanned_pages_count_reclaim_by_limit() {
    let Some(own) = group("scanned") else { return };
    let memcg = Memcg::new(own.group().clone());
    memcg.set_limit(Some(Bytes::mib(16))).unwrap();
    let all = || vmstat::read(Path::new("/")).unwrap().scanned_pages_of_groups();
    let (before, group_before) = (all(), memcg.scanned_pages().unwrap());
    // The child waits for a line, so that all its writes are charged to the group.
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Command::new("sh")
        .args([
            "-c",
            "read _; exec dd if=/dev/zero bs=1M count=64 status=none of=\"$0\"",
        ])
        .arg(file.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let joined = own.group().add(writer.id());
    writer.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(writer.wait().unwrap().success());
    let (group, all) = (memcg.scanned_pages().unwrap() - group_before, all() - before);
    own.remove().unwrap();
    if let Err(why) = joined {
        eprintln!("SKIP: cannot move a process to a group: {why}");
        return;
    }
    // 48 MiB did not fit, and each of these pages was scanned.
    let least = (48 << 20) / rustix::param::page_size() as u64;
    assert!(
        all >= least && group > 1000,
        "{all} pages of all groups, {group} of this one"
    );
}
