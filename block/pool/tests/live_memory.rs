//! Real memory: pages returned to the kernel, and a burst in a control group smaller than the requested
//! buffers.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use thermo_kernel::cgroup::TemporaryGroup;
use thermo_kernel::memcg::Memcg;
use thermo_kernel::statm;
use thermo_pool::{Pools, Settings};
use thermo_units::Bytes;

fn resident() -> Bytes {
    statm::read(Path::new("/"), std::process::id()).unwrap().resident
}

#[test]
fn squeeze_lowers_resident_memory() {
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
        eprintln!(
            "SKIP: the machine swapped out the burst: {before} resident before, only {burst} in the burst"
        );
        return;
    }
    // Other tests of this process hold little memory.
    assert!(
        after < before + Bytes::mib(32),
        "{before} before, {burst} in the burst, {after} after"
    );
}

const DEVICES: usize = 32;
const IN_FLIGHT: usize = 8;
const BUDGET: Bytes = Bytes::mib(64);
const GROUP_LIMIT: Bytes = Bytes::mib(160);
const CHILD_ENV: &str = "THERMO_POOL_BURST";

// Acquires 256 MiB at once. The test below runs this in a group limited to 160 MiB.
#[test]
fn burst() {
    if std::env::var_os(CHILD_ENV).is_none() {
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
fn burst_larger_than_cgroup_survives() {
    let name = format!("thermo-test-pool-{}", std::process::id());
    let own = match TemporaryGroup::create(Path::new("/"), "memory", &name) {
        Ok(own) => own,
        Err(error) => {
            eprintln!("SKIP: cannot create a memory control group: {error}");
            return;
        }
    };
    if let Err(error) = Memcg::new(own.group().clone()).set_limit(Some(GROUP_LIMIT)) {
        eprintln!("SKIP: cannot set a memory limit: {error}");
        return;
    }
    // The child waits for a line, so that all its memory is allocated in the group.
    let mut child = Command::new("sh")
        .args(["-c", "read _; exec \"$0\" --exact burst"])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD_ENV, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let joined = own.group().add(child.id());
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let status = child.wait().unwrap();
    own.remove().unwrap();
    if let Err(error) = joined {
        eprintln!("SKIP: cannot move a process into a control group: {error}");
        return;
    }
    assert!(status.success(), "{status}");
}
