//! Free pages of a pool, and the effect of a squeeze.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_pool::{Pool, Pools, ReclaimBus, ReleaseAdvice, Settings};
use thermo_units::Bytes;

const HOUR_MS: u64 = 3_600_000;

fn open(settings: Settings) -> (Pools, Pool) {
    let pools = Pools::new(Bytes::mib(64), settings);
    let pool = pools.open("disk", Bytes::mib(1)).unwrap();
    (pools, pool)
}

fn burst(pool: &Pool, count: usize, len: usize) {
    let held: Vec<_> = (0..count).map(|_| pool.acquire(len).unwrap()).collect();
    drop(held);
}

#[test]
fn pool_starts_empty_grows_and_keeps_limit() {
    let (_, pool) = open(Settings {
        max_buffer_pages: 16,
        ..Settings::default()
    });
    assert_eq!(pool.stats().held_pages, 0);
    let page = rustix::param::page_size();
    burst(&pool, 100, page);
    assert_eq!((pool.stats().free_pages, pool.stats().grown), (100, 100));
    pool.end_batch();
    assert_eq!((pool.stats().free_pages, pool.stats().held_pages), (16, 16));
    burst(&pool, 16, page);
    assert_eq!((pool.stats().grown, pool.stats().depot_hits), (100, 16));
}

#[test]
fn squeeze_releases_only_free_pages() {
    let (pools, pool) = open(Settings::default());
    let cache = pool.cache();
    let mut used = cache.acquire(65536).unwrap();
    used.fill(42);
    drop(cache.acquire(65536).unwrap());
    assert_eq!(pools.report_pressure(), Bytes(65536));
    assert!(used.iter().all(|&byte| byte == 42));
    assert_eq!(pools.usage().used, Bytes(65536));
}

#[test]
fn end_batch_keeps_nothing_only_during_squeeze() {
    let squeezed_for = |buffer_squeeze_duration_ms| Settings {
        buffer_squeeze_duration_ms,
        ..Settings::default()
    };
    let (pools, pool) = open(squeezed_for(HOUR_MS));
    let cache = pool.cache();
    pools.report_pressure();
    drop(cache.acquire(4096).unwrap());
    cache.end_batch();
    assert_eq!(pool.stats().free_pages, 0);
    let (pools, pool) = open(squeezed_for(1));
    pools.report_pressure();
    std::thread::sleep(std::time::Duration::from_millis(2));
    burst(&pool, 1, 4096);
    pool.end_batch();
    assert_eq!(pool.stats().free_pages, 1);
}

#[test]
fn zero_squeeze_duration_ignores_reports() {
    let (pools, pool) = open(Settings {
        buffer_squeeze_duration_ms: 0,
        ..Settings::default()
    });
    burst(&pool, 1, 4096);
    assert_eq!(pools.report_pressure(), Bytes::ZERO);
    assert_eq!((pool.stats().free_pages, pool.stats().squeezes), (1, 0));
}

#[test]
fn squeeze_empties_magazine_of_sleeping_thread() {
    let (pools, pool) = open(Settings::default());
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (resume, may_resume) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let cache = pool.cache();
        scope.spawn(move || {
            drop(cache.acquire(1 << 20).unwrap());
            ready.send(()).unwrap();
            // Sleeps, as in epoll_wait, with a buffer in its magazine.
            let _ = may_resume.recv();
        });
        is_ready.recv().unwrap();
        assert_eq!(pools.report_pressure(), Bytes::mib(1));
        drop(resume);
    });
}

#[test]
fn buffers_may_outlive_pool_and_change_threads() {
    let (pools, pool) = open(Settings::default());
    let cache = pool.cache();
    let mut buffer = cache.acquire(8192).unwrap();
    drop((cache, pool));
    std::thread::spawn(move || {
        buffer.fill(1);
        drop(buffer);
    })
    .join()
    .unwrap();
    assert_eq!(pools.usage().used, Bytes::ZERO);
    let mut orphan = pools.open("next", Bytes::mib(1)).unwrap().acquire(4096).unwrap();
    drop(pools);
    orphan.fill(2);
}

#[test]
fn pools_never_see_bytes_of_another() {
    let pools = Pools::new(Bytes::mib(2), Settings::default());
    for release_advice in [ReleaseAdvice::DontNeed, ReleaseAdvice::Free] {
        pools.configure(Settings {
            release_advice,
            ..pools.settings()
        });
        let secret = pools.open("secret", Bytes::mib(1)).unwrap();
        burst_of(&secret, 7);
        let other = pools.open("other", Bytes::mib(1)).unwrap();
        let seen = other.acquire(1 << 20).unwrap();
        assert!(seen.iter().all(|&byte| byte == 0), "{release_advice:?}");
    }
}

fn burst_of(pool: &Pool, byte: u8) {
    let mut held = [pool.acquire(1 << 20).unwrap(), pool.acquire(4096).unwrap()];
    held.iter_mut().for_each(|buffer| buffer.fill(byte));
}

#[test]
fn zero_setting_clears_buffers_of_shared_pool() {
    for release_advice in [ReleaseAdvice::DontNeed, ReleaseAdvice::Free] {
        let (_, pool) = open(Settings {
            zero: true,
            release_advice,
            ..Settings::default()
        });
        let cache = pool.cache();
        for squeeze in [false, true, false] {
            let mut buffer = cache.acquire(128 << 10).unwrap();
            assert!(buffer.iter().all(|&byte| byte == 0), "{release_advice:?}");
            buffer.fill(9);
            drop(buffer);
            if squeeze {
                pool.report_pressure();
            }
        }
    }
}

#[test]
fn lazily_released_pages_are_reusable() {
    let (_, pool) = open(Settings {
        release_advice: ReleaseAdvice::Free,
        ..Settings::default()
    });
    burst_of(&pool, 3);
    pool.report_pressure();
    assert_eq!(pool.stats().held_pages, 0);
    burst_of(&pool, 4);
    let stats = pool.stats();
    assert_eq!(
        (stats.mapped, stats.return_errors),
        (2, 0),
        "address space is not reused: {stats:?}"
    );
}

#[test]
fn pressure_on_bus_squeezes_registered_pools() {
    let (pools, pool) = open(Settings::default());
    let bus = ReclaimBus::new(thermo_units::Nanos::ZERO);
    let registration = pools.register_on(&bus, 0);
    burst(&pool, 3, 4096);
    let summary = bus.report_pressure("by hand");
    assert_eq!(
        (summary.called, summary.freed),
        (1, Bytes(3 * 4096.max(rustix::param::page_size() as u64)))
    );
    drop(registration);
    assert_eq!(bus.report_pressure("by hand").called, 0);
}

#[test]
fn settings_apply_to_one_or_all_pools() {
    let (pools, pool) = open(Settings::default());
    let other = pools.open("other", Bytes::mib(1)).unwrap();
    let none = Settings {
        max_buffer_pages: 0,
        ..Settings::default()
    };
    pool.configure(none);
    burst(&pool, 2, 4096);
    burst(&other, 2, 4096);
    pools.shrink();
    assert_eq!((pool.stats().free_pages, other.stats().free_pages), (0, 2));
    pools.configure(none);
    pools.shrink();
    assert_eq!(
        (other.stats().free_pages, other.settings(), pools.settings()),
        (0, none, none)
    );
    assert!(
        pools
            .prometheus()
            .contains("thermo_pool_free_pages{pool=\"other\"} 0\n")
    );
}
