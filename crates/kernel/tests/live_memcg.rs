//! A memory control group of our own: limited, read, removed.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use thermo_kernel::cgroup::OwnGroup;
use thermo_kernel::memcg::Memcg;
use thermo_kernel::vmstat;
use thermo_units::Bytes;

fn group(name: &str) -> Option<OwnGroup> {
    let name = format!("thermo-test-{name}-{}", std::process::id());
    OwnGroup::create(Path::new("/"), "memory", &name)
        .inspect_err(|why| eprintln!("SKIP: no memory control group can be made here: {why}"))
        .ok()
}

#[test]
fn a_limit_is_set_and_taken_off() {
    let Some(own) = group("memcg") else { return };
    let memcg = Memcg::new(own.group().clone());
    assert_eq!(memcg.limit().unwrap(), None);
    memcg.set_limit(Some(Bytes::mib(64))).unwrap();
    assert_eq!(memcg.limit().unwrap(), Some(Bytes::mib(64)));
    memcg.set_limit(None).unwrap();
    assert_eq!(memcg.limit().unwrap(), None);
    memcg.stat().unwrap();
    assert!(memcg.usage().unwrap() < Bytes::mib(64), "nobody is in it");
    let dir = own.group().dir.clone();
    own.remove().unwrap();
    assert!(!dir.exists());
}

#[test]
fn what_a_limit_makes_the_kernel_look_at_is_counted() {
    let Some(own) = group("scanned") else { return };
    let memcg = Memcg::new(own.group().clone());
    memcg.set_limit(Some(Bytes::mib(16))).unwrap();
    let all = || vmstat::read(Path::new("/")).unwrap().scanned_pages_of_groups();
    let (before, group_before) = (all(), memcg.scanned_pages().unwrap());
    // It waits for a line, so that all it writes is accounted to the group.
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
        eprintln!("SKIP: no process can be moved into a group here: {why}");
        return;
    }
    // 48 MiB did not fit, and each page of those was looked at.
    let least = (48 << 20) / rustix::param::page_size() as u64;
    assert!(
        all >= least && group > 1000,
        "{all} pages of all groups, {group} of this one"
    );
}
