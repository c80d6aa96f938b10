//! Cost of acquiring a buffer: hot from a pool, from a rotating pool, after a squeeze, and without a pool.
//! Compare only the ratios within one run; machines and load differ.
//!
//!     cargo bench -p thermo-pool

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use thermo_pool::{Cache, Pool, Pools, ReleaseAdvice, Settings};
use thermo_units::Bytes;

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(40);
const SIZES: [usize; 3] = [4 << 10, 128 << 10, 1 << 20];
/// The size that a server would keep after a burst; larger than the caches of a CPU.
const BIG: usize = 64 << 20;

fn main() {
    println!(
        "{:>8} {:>12} | relative to hot:     {:>8} {:>10} {:>10} {:>10}",
        "size", "hot us", "rotating", "free", "dontneed", "malloc"
    );
    for size in SIZES {
        let mut cases: [Box<dyn FnMut()>; 5] = [
            hot(size),
            rotating(size),
            squeezed(size, ReleaseAdvice::Free),
            squeezed(size, ReleaseAdvice::DontNeed),
            malloc(size),
        ];
        // Interleaved, so that background load affects all cases alike.
        let mut times = [const { Vec::new() }; 5];
        for _ in 0..ROUNDS {
            for (case, times) in cases.iter_mut().zip(&mut times) {
                times.push(time_of(case));
            }
        }
        let medians = times.map(median);
        let ratio = |at: usize| medians[at] / medians[0];
        println!(
            "{:>8} {:>12.2} | {:>30.1} {:>10.1} {:>10.1} {:>10.1}",
            Bytes(size as u64).to_string(),
            medians[0] * 1e6,
            ratio(1),
            ratio(2),
            ratio(3),
            ratio(4)
        );
    }
}

fn pool(release_advice: ReleaseAdvice) -> Pool {
    let settings = Settings {
        max_buffer_pages: u64::MAX,
        release_advice,
        ..Settings::default()
    };
    let pools = Pools::new(Bytes(2 * BIG as u64), settings);
    pools
        .open("bench", Bytes::mib(1))
        .expect("the only pool fits the budget")
}

fn use_one(cache: &Cache, size: usize) -> thermo_pool::Buffer {
    let mut buffer = cache.acquire(size).expect("the budget exceeds all held buffers");
    buffer.fill(1);
    black_box(&buffer);
    buffer
}

// LIFO reuse: always the same buffer.
fn hot(size: usize) -> Box<dyn FnMut()> {
    let cache = pool(ReleaseAdvice::DontNeed).cache();
    Box::new(move || drop(use_one(&cache, size)))
}

// FIFO reuse in a large pool: always the oldest buffer.
fn rotating(size: usize) -> Box<dyn FnMut()> {
    let cache = pool(ReleaseAdvice::DontNeed).cache();
    let mut held: VecDeque<_> = (0..BIG / size).map(|_| use_one(&cache, size)).collect();
    Box::new(move || {
        if let Some(mut oldest) = held.pop_front() {
            oldest.fill(1);
            held.push_back(oldest);
        }
    })
}

// The cost of every request during a squeeze.
fn squeezed(size: usize, release_advice: ReleaseAdvice) -> Box<dyn FnMut()> {
    let pool = pool(release_advice);
    pool.configure(Settings {
        max_buffer_pages: 0,
        ..pool.settings()
    });
    let cache = pool.cache();
    Box::new(move || {
        drop(use_one(&cache, size));
        cache.end_batch();
    })
}

fn malloc(size: usize) -> Box<dyn FnMut()> {
    Box::new(move || {
        let mut buffer = Vec::with_capacity(size);
        buffer.resize(size, 1_u8);
        black_box(&buffer);
    })
}

fn time_of(case: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < ROUND {
        for _ in 0..8 {
            case();
        }
        count += 8;
    }
    start.elapsed().as_secs_f64() / f64::from(count)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
