//! The example with operations of its own works.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../examples/object_cache.rs"]
#[allow(dead_code, reason = "the test calls run() instead of main()")]
mod object_cache;

use thermo_units::{Bytes, Nanos};

#[test]
fn object_cache_keeps_what_is_used_and_evicts_the_rest_within_the_quota() {
    let mut held = Vec::new();
    let cache = object_cache::run(Nanos::secs(20), |_, tables| held.push(tables.resident())).unwrap();
    assert_eq!(cache.held(), Bytes::mib(4), "what is used stays");
    assert_eq!(
        held[0],
        Bytes::mib(16),
        "nothing is evicted before it is old enough"
    );
    let fell = held.windows(2).map(|pair| pair[0].saturating_sub(pair[1]));
    assert_eq!(
        fell.max().unwrap(),
        Bytes::mib(1),
        "the quota of a second: {held:?}"
    );
}
