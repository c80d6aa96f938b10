//! Real memory: what the kernel gets back, and a burst in a control group that is smaller than what it asks for.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use thermo_kernel::cgroup::OwnGroup;
use thermo_kernel::memcg::Memcg;
use thermo_kernel::statm;
use thermo_pool::{Pools, Settings};
use thermo_units::Bytes;

fn resident() -> Bytes {
    statm::read(Path::new("/"), std::process::id()).unwrap().resident
}

#[test]
fn what_a_squeeze_frees_is_resident_no_more() {
    let pools = Pools::new(Bytes::mib(256), Settings::default());
    let disk = pools.open("disk", Bytes::mib(1)).unwrap();
    let before = resident();
    let mut held: Vec<_> = (0..128).map(|_| disk.acquire(1 << 20).unwrap()).collect();
    held.iter_mut().for_each(|buffer| buffer.fill(1));
    drop(held);
    let burst = resident();
    assert_eq!(pools.report_pressure(), Bytes::mib(128));
    let after = resident();
    if burst < before + Bytes::mib(112) {
        eprintln!("SKIP: the machine swapped the burst out by itself: {before}, then only {burst} resident");
        return;
    }
    // Other tests of this process hold little.
    assert!(
        after < before + Bytes::mib(32),
        "{before} before, {burst} in the burst, {after} after"
    );
}

const DEVICES: usize = 32;
const IN_FLIGHT: usize = 8;
const BUDGET: Bytes = Bytes::mib(64);
const GROUP: Bytes = Bytes::mib(160);
const IS_CHILD: &str = "THERMO_POOL_BURST";

// Asks for 256 MiB at once; run by the test below in a group of 160.
#[test]
fn burst() {
    if std::env::var_os(IS_CHILD).is_none() {
        return;
    }
    let pools = Pools::new(BUDGET, Settings::default());
    let start = std::sync::Barrier::new(DEVICES * IN_FLIGHT);
    std::thread::scope(|scope| {
        for device in 0..DEVICES {
            let disk = pools.open(&device.to_string(), Bytes::mib(1)).unwrap();
            for _ in 0..IN_FLIGHT {
                let (cache, start) = (disk.cache(), &start);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..3 {
                        cache.acquire(1 << 20).unwrap().fill(1);
                        cache.end_batch();
                    }
                });
            }
        }
    });
    assert!(pools.usage().peak <= BUDGET, "{:?}", pools.usage());
}

#[test]
fn a_burst_larger_than_the_group_is_survived() {
    let name = format!("thermo-test-pool-{}", std::process::id());
    let own = match OwnGroup::create(Path::new("/"), "memory", &name) {
        Ok(own) => own,
        Err(error) => {
            eprintln!("SKIP: no memory control group can be made here: {error}");
            return;
        }
    };
    if let Err(error) = Memcg::new(own.group().clone()).set_limit(Some(GROUP)) {
        eprintln!("SKIP: no memory limit can be set here: {error}");
        return;
    }
    // It waits for a line, so that all its memory is allocated in the group.
    let mut child = Command::new("sh")
        .args(["-c", "read _; exec \"$0\" --exact burst"])
        .arg(std::env::current_exe().unwrap())
        .env(IS_CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let joined = own.group().add(child.id());
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let status = child.wait().unwrap();
    own.remove().unwrap();
    if let Err(error) = joined {
        eprintln!("SKIP: no process can be moved into a group here: {error}");
        return;
    }
    assert!(status.success(), "{status}");
}
