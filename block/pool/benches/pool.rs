//! What a buffer costs: hot from a pool, from a pool that rotates, after a squeeze, and without a pool. One run, so
//! compare the ratios in it: machines differ, and this one was busy.
//!
//!     cargo bench -p thermo-pool

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use thermo_pool::{Cache, GiveBack, Pool, Pools, Settings};
use thermo_units::Bytes;

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(40);
const SIZES: [usize; 3] = [4 << 10, 128 << 10, 1 << 20];
/// As large as what a server would keep after a burst, and larger than the caches of a CPU.
const BIG: usize = 64 << 20;

fn main() {
    println!(
        "{:>8} {:>12} | times as long as hot: {:>8} {:>10} {:>10} {:>10}",
        "size", "hot us", "rotating", "free", "dontneed", "malloc"
    );
    for size in SIZES {
        let mut ways: [Box<dyn FnMut()>; 5] = [
            hot(size),
            rotating(size),
            squeezed(size, GiveBack::Free),
            squeezed(size, GiveBack::DontNeed),
            malloc(size),
        ];
        // In turn, round by round, so that a busy moment hits all alike.
        let mut times = [const { Vec::new() }; 5];
        for _ in 0..ROUNDS {
            for (way, times) in ways.iter_mut().zip(&mut times) {
                times.push(time_of(way));
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

fn pool(give_back: GiveBack) -> Pool {
    let settings = Settings {
        max_buffer_pages: u64::MAX,
        give_back,
        ..Settings::default()
    };
    let pools = Pools::new(Bytes(2 * BIG as u64), settings);
    pools
        .open("bench", Bytes::mib(1))
        .expect("it is the only one, and fits the budget")
}

fn use_one(cache: &Cache, size: usize) -> thermo_pool::Buffer {
    let mut buffer = cache
        .acquire(size)
        .expect("the budget is larger than what is held");
    buffer.fill(1);
    black_box(&buffer);
    buffer
}

// What LIFO gives: always the same buffer.
fn hot(size: usize) -> Box<dyn FnMut()> {
    let cache = pool(GiveBack::DontNeed).cache();
    Box::new(move || drop(use_one(&cache, size)))
}

// What a large pool gives that lends its oldest buffer first.
fn rotating(size: usize) -> Box<dyn FnMut()> {
    let cache = pool(GiveBack::DontNeed).cache();
    let mut held: VecDeque<_> = (0..BIG / size).map(|_| use_one(&cache, size)).collect();
    Box::new(move || {
        if let Some(mut oldest) = held.pop_front() {
            oldest.fill(1);
            held.push_back(oldest);
        }
    })
}

// What every request pays while squeezed.
fn squeezed(size: usize, give_back: GiveBack) -> Box<dyn FnMut()> {
    let pool = pool(give_back);
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

fn time_of(way: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < ROUND {
        for _ in 0..8 {
            way();
        }
        count += 8;
    }
    start.elapsed().as_secs_f64() / f64::from(count)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
