//! Waiting for the budget: FIFO order, deadlines, no deadlock, and never above the limit.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod until;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thermo_pool::{AcquireError, OpenError, Pools, Settings};
use thermo_units::{Bytes, Nanos};
use until::until;

fn pools(mib: u64) -> Pools {
    Pools::new(Bytes::mib(mib), Settings::default())
}

#[test]
fn try_acquire_fails_with_numbers_when_budget_is_full() {
    let pools = pools(2);
    let disk = pools.open("disk", Bytes::mib(1)).unwrap();
    let _held = [disk.acquire(1 << 20).unwrap(), disk.acquire(1 << 20).unwrap()];
    let error = disk.try_acquire(1).unwrap_err();
    assert!(matches!(error, AcquireError::Full { .. }));
    let text = error.to_string();
    assert!(text.contains("pool disk") && text.contains("2.00 MiB"), "{text}");
    let error = disk.acquire_within(1, Nanos::millis(1)).unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }));
    assert_eq!(disk.stats().refused, 2);
    let error = disk.acquire((1 << 20) + 1).unwrap_err();
    assert!(matches!(error, AcquireError::TooLarge { .. }));
}

#[test]
fn open_rejects_oversized_reserves_and_taken_names() {
    let pools = pools(2);
    let one = pools.open("one", Bytes::mib(1)).unwrap();
    assert!(matches!(
        pools.open("one", Bytes::mib(1)),
        Err(OpenError::NameTaken(_))
    ));
    assert!(matches!(
        pools.open("two", Bytes::mib(2)),
        Err(OpenError::NoReserve { .. })
    ));
    assert!(matches!(
        pools.open("big", Bytes::gib(1)),
        Err(OpenError::TooLarge { .. })
    ));
    assert!(matches!(
        pools.set_budget(Bytes(1)),
        Err(OpenError::BelowReserves { .. })
    ));
    assert_eq!(pools.usage().reserved, Bytes::mib(1));
    drop(one);
    assert_eq!(pools.usage().reserved, Bytes::ZERO);
    pools.open("one", Bytes::mib(2)).unwrap();
}

#[test]
fn free_pages_of_one_pool_serve_another() {
    let pools = pools(4);
    let (one, two) = (
        pools.open("one", Bytes::mib(1)).unwrap(),
        pools.open("two", Bytes::mib(1)).unwrap(),
    );
    let cache = one.cache();
    let held: Vec<_> = (0..3).map(|_| cache.acquire(1 << 20).unwrap()).collect();
    drop(held);
    assert_eq!(pools.usage().used, Bytes::mib(3));
    let _without_waiting = [
        two.try_acquire(1 << 20).unwrap(),
        two.try_acquire(1 << 20).unwrap(),
    ];
    let _waiting = two.acquire_within(1 << 20, Nanos::secs(60)).unwrap();
    assert!(pools.usage().used <= Bytes::mib(4));
    let stats = pools.stats();
    assert_eq!((stats[0].0.as_str(), stats[1].0.as_str()), ("one", "two"));
}

#[test]
fn greedy_device_cannot_starve_another() {
    let pools = pools(4);
    let greedy = pools.open("greedy", Bytes::mib(1)).unwrap();
    let modest = pools.open("modest", Bytes::mib(1)).unwrap();
    let held: Vec<_> = std::iter::from_fn(|| greedy.try_acquire(1 << 20).ok()).collect();
    assert_eq!(held.len(), 3);
    modest.try_acquire(1 << 20).unwrap();
}

#[test]
fn waiting_requests_are_served_in_order() {
    let pools = pools(1);
    let disk = pools.open("disk", Bytes::mib(1)).unwrap();
    let held = disk.acquire(1 << 20).unwrap();
    let (order, done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (pool, order) = (disk.clone(), order.clone());
            scope.spawn(move || {
                // Nothing else is held, so the sends are in service order.
                let buffer = pool.acquire(1 << 20).unwrap();
                order.send(number).unwrap();
                drop(buffer);
            });
            // `waits` is incremented after the thread has joined the queue.
            until("the request waits", || disk.stats().waits == number + 1);
        }
        drop(held);
    });
    assert_eq!(done.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(disk.stats().handed_over > 0);
}

#[test]
fn lower_budget_applies_as_buffers_return() {
    let pools = pools(4);
    let disk = pools.open("disk", Bytes::mib(1)).unwrap();
    let mut held: Vec<_> = (0..4).map(|_| disk.acquire(1 << 20).unwrap()).collect();
    pools.set_budget(Bytes::mib(2)).unwrap();
    held.truncate(2);
    assert!(disk.try_acquire(1 << 20).is_ok(), "a free buffer is reused");
    pools.report_pressure();
    disk.try_acquire(1 << 20).unwrap_err();
    held.clear();
    disk.try_acquire(1 << 20).unwrap();
}

#[test]
fn concurrent_devices_stay_within_budget_and_finish() {
    let pools = pools(3);
    let served = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for device in 0..4 {
            let pool = pools.open(&format!("disk{device}"), Bytes::kib(512)).unwrap();
            for thread in 0..3 {
                let (cache, served) = (pool.cache(), Arc::clone(&served));
                scope.spawn(move || {
                    for round in 0..60_usize {
                        let len = 4096 << ((round * 7 + thread * 3 + device) % 8);
                        let mut buffer = cache.acquire(len).unwrap();
                        buffer.fill(device as u8);
                        std::thread::yield_now();
                        assert!(
                            buffer.iter().all(|&byte| byte == device as u8),
                            "buffer is shared with another user"
                        );
                        drop(buffer);
                        if round % 5 == 0 {
                            cache.end_batch();
                        }
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
        let squeezer = pools.clone();
        let served = Arc::clone(&served);
        scope.spawn(move || {
            while served.load(Ordering::Relaxed) < 4 * 3 * 60 {
                squeezer.report_pressure();
                std::thread::yield_now();
            }
        });
    });
    assert!(pools.usage().peak <= Bytes::mib(3), "{:?}", pools.usage());
    assert_eq!(pools.usage().used, Bytes::ZERO, "all pools are closed");
}
