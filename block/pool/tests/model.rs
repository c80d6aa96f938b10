//! Random operations on pools, checked against invariants.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use thermo_pool::{Buffer, Pools, ReleaseAdvice, Settings};
use thermo_units::Bytes;

const BUDGET: Bytes = Bytes::mib(2);

#[derive(Debug, Clone)]
enum Step {
    Take { pool: usize, cached: bool, len: usize },
    Drop(usize),
    EndBatch(usize),
    Squeeze,
    Configure { pages: u64, lazy_free: bool, zero: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3usize, any::<bool>(), 0..600_000usize).prop_map(|(pool, cached, len)| Step::Take { pool, cached, len }),
        5 => any::<usize>().prop_map(Step::Drop),
        2 => (0..3usize).prop_map(Step::EndBatch),
        1 => Just(Step::Squeeze),
        1 => (0..200u64, any::<bool>(), any::<bool>())
            .prop_map(|(pages, lazy_free, zero)| Step::Configure { pages, lazy_free, zero }),
    ]
}

fn fill_marker(buffer: &mut Buffer, number: u64) {
    for chunk in buffer.chunks_mut(1024) {
        let len = chunk.len().min(8);
        chunk[..len].copy_from_slice(&number.to_le_bytes()[..len]);
    }
}

fn has_marker(buffer: &Buffer, number: u64) -> bool {
    let bytes = number.to_le_bytes();
    buffer
        .chunks(1024)
        .all(|chunk| chunk.starts_with(&bytes[..chunk.len().min(8)]))
}

proptest! {
    #![proptest_config(Config { cases: 60, rng_seed: RngSeed::Fixed(2019), failure_persistence: None, ..Config::default() })]

    #[test]
    fn buffers_are_exclusive_and_budget_holds(steps in prop::collection::vec(step(), 1..120)) {
        let pools = Pools::new(BUDGET, Settings { buffer_squeeze_duration_ms: 1, ..Settings::default() });
        let opened: Vec<_> = (0..3).map(|at| pools.open(&format!("{at}"), Bytes::kib(512)).unwrap()).collect();
        let caches: Vec<_> = opened.iter().map(thermo_pool::Pool::cache).collect();
        let mut held: Vec<(u64, Buffer)> = Vec::new();
        for (number, step) in (1..).zip(steps) {
            match step {
                Step::Take { pool, cached, len } => {
                    let acquired = if cached { caches[pool].try_acquire(len) } else { opened[pool].try_acquire(len) };
                    prop_assert!(acquired.is_err() || len <= 512 << 10);
                    if let Ok(mut buffer) = acquired {
                        prop_assert_eq!(buffer.len(), len);
                        prop_assert!(!pools.settings().zero || buffer.iter().all(|&byte| byte == 0));
                        fill_marker(&mut buffer, number);
                        held.push((number, buffer));
                    }
                }
                Step::Drop(_) if held.is_empty() => {}
                Step::Drop(at) => {
                    let (number, buffer) = held.swap_remove(at % held.len());
                    prop_assert!(has_marker(&buffer, number));
                }
                Step::EndBatch(pool) => {
                    caches[pool].end_batch();
                    prop_assert!(opened[pool].stats().free_pages <= pools.settings().max_buffer_pages);
                }
                Step::Squeeze => {
                    pools.report_pressure();
                    let used: usize = held.iter().map(|(_, buffer)| buffer.capacity()).sum();
                    prop_assert_eq!(pools.usage().used, Bytes(used as u64));
                }
                Step::Configure { pages, lazy_free, zero } => pools.configure(Settings {
                    max_buffer_pages: pages,
                    release_advice: if lazy_free { ReleaseAdvice::Free } else { ReleaseAdvice::DontNeed },
                    zero,
                    ..pools.settings()
                }),
            }
            let page = rustix::param::page_size() as u64;
            let lent: usize = held.iter().map(|(_, buffer)| buffer.capacity()).sum();
            let free: u64 = opened.iter().map(|pool| pool.stats().free_pages * page).sum();
            prop_assert_eq!(pools.usage().used, Bytes(lent as u64 + free));
        }
        prop_assert!(pools.usage().peak <= BUDGET);
        prop_assert!(held.iter().all(|(number, buffer)| has_marker(buffer, *number)));
        drop(held);
        // A pool that holds nothing gets its largest request, even if other pools keep free pages.
        let _all: Vec<_> = opened.iter().map(|pool| pool.try_acquire(512 << 10).unwrap()).collect();
    }
}
