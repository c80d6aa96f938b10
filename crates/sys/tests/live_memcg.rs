//! A memory control group of our own: limited, read, removed.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use thermo_core::Bytes;
use thermo_sys::cgroup::OwnGroup;
use thermo_sys::memcg::Memcg;

#[test]
fn a_limit_is_set_and_taken_off() {
    let name = format!("thermo-test-memcg-{}", std::process::id());
    let own = match OwnGroup::create(Path::new("/"), "memory", &name) {
        Ok(own) => own,
        Err(err) => {
            eprintln!("SKIP: no memory control group can be made here: {err}");
            return;
        }
    };
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
